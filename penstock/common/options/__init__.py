"""All of Penstock's settings, and the places settings come from.

From lowest to highest precedence: the configuration file, the variable PENSTOCK_PROPERTIES (both with lines
`key: value`), the program's Configuration, `penstock run -D key=value`, and calls such as `set_parallelism`.

definition.py                               the Option class
program.py, checkpoints.py, restarts.py,    the options by subject: import each from its module
state.py, query.py, running.py, metrics.py,
service.py
flink/                                      Flink's settings that have no effect here, or are refused
registry.py                                 all options by key, and the validation of settings
surrounding.py                              settings from the file and the environment variable
page.py                                     docs/reference/settings.md
"""

from penstock.common.options.definition import Option
from penstock.common.options.page import options_page
from penstock.common.options.registry import (
    ALIASES,
    OPTIONS,
    canonical,
    check_keys,
    check_values,
    is_effective,
    is_known,
    near_miss,
    store_options,
    without_effect,
)
from penstock.common.options.surrounding import configuration_file, parse_lines, surrounding_settings
from penstock.common.setting_types import BadSetting

__all__ = [
    "ALIASES",
    "OPTIONS",
    "BadSetting",
    "Option",
    "canonical",
    "check_keys",
    "check_values",
    "configuration_file",
    "is_effective",
    "is_known",
    "near_miss",
    "options_page",
    "parse_lines",
    "store_options",
    "surrounding_settings",
    "without_effect",
]
