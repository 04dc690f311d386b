"""Read the state of savepoints and checkpoints as tables, and write savepoints from tables.

See docs/query/state-tables.md.

::

    Savepoint, Checkpoint   savepoint.py, checkpoint.py   the snapshots; `state` returns a StateTable
    StateTable              table.py                      to_arrow, to_pandas, to_spark, get
    history                 key_history.py                one key across many snapshots
    SavepointWriter         writer.py                     bootstrap.py: new state; rewriting.py: changed state
                            schemas.py, shapes.py, keys.py: from stored types to columns
                            contents.py, layouts.py, sources.py: from files to rows

Names are imported lazily: every driver and worker imports ``Savepoint``, but few read one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.tables.bootstrap import KeyedStateBootstrapFunction, OperatorTransformation, StateBootstrapFunction
    from penstock.tables.checkpoint import Checkpoint
    from penstock.tables.key_history import history
    from penstock.tables.savepoint import Savepoint
    from penstock.tables.snapshot import StateInfo
    from penstock.tables.table import StateTable
    from penstock.tables.writer import SavepointWriter

__all__ = [
    "Checkpoint",
    "KeyedStateBootstrapFunction",
    "OperatorTransformation",
    "Savepoint",
    "SavepointWriter",
    "StateBootstrapFunction",
    "StateInfo",
    "StateTable",
    "history",
]

_MODULES = {
    "Checkpoint": "checkpoint",
    "KeyedStateBootstrapFunction": "bootstrap",
    "OperatorTransformation": "bootstrap",
    "Savepoint": "savepoint",
    "SavepointWriter": "writer",
    "StateBootstrapFunction": "bootstrap",
    "StateInfo": "snapshot",
    "StateTable": "table",
    "history": "key_history",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
