"""Every setting Penstock knows, and where settings come from.

From weakest to strongest: the file that PENSTOCK_CONF names, the variable PENSTOCK_PROPERTIES (both with lines
`key: value`), the program's Configuration, `penstock run -D key=value`, and calls such as `set_parallelism`.

definition.py                               what an option is
program.py, checkpoints.py, restarts.py,    the options, by subject: import each from its module
state.py, running.py
registry.py                                 all options by key, and checks of settings
surrounding.py                              the settings of the file and of the environment variable
page.py                                     docs/reference/settings.md
"""

from penstock.common.options.definition import Option
from penstock.common.options.page import options_page
from penstock.common.options.registry import ALIASES, OPTIONS, canonical, check_keys, check_values, store_options
from penstock.common.options.surrounding import parse_lines, surrounding_settings
from penstock.common.setting_types import BadSetting

__all__ = [
    "ALIASES",
    "OPTIONS",
    "BadSetting",
    "Option",
    "canonical",
    "check_keys",
    "check_values",
    "options_page",
    "parse_lines",
    "store_options",
    "surrounding_settings",
]
