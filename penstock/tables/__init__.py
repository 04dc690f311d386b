"""The state of savepoints and checkpoints as tables, and savepoints from tables. See docs/state-tables.md.

Savepoint, Checkpoint   savepoint.py, checkpoint.py   what there is; `state` gives a StateTable
StateTable              table.py                      to_arrow, to_pandas, to_spark, get
history                 history.py                    one key over all of them
SavepointWriter         writer.py                     bootstrap.py: new state; rewriting.py: changed state
                        schemas.py, shapes.py, keys.py: from stored types to columns
                        contents.py, layouts.py, sources.py: from files to rows
"""

from penstock.tables.bootstrap import KeyedStateBootstrapFunction, OperatorTransformation, StateBootstrapFunction
from penstock.tables.checkpoint import Checkpoint
from penstock.tables.history import history
from penstock.tables.savepoint import Savepoint
from penstock.tables.table import StateInfo, StateTable
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
