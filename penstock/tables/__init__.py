"""The state of savepoints and checkpoints as tables, and savepoints from tables. See docs/state-tables.md.

Savepoint, Checkpoint   savepoint.py, checkpoint.py   what there is; `state` gives a StateTable
StateTable              table.py                      to_arrow, to_pandas, to_spark, get
history                 history.py                    one key over all of them
                        schemas.py, shapes.py, keys.py: from stored types to columns
                        contents.py, layouts.py, sources.py: from files to rows
"""

from penstock.tables.checkpoint import Checkpoint
from penstock.tables.history import history
from penstock.tables.savepoint import Savepoint
from penstock.tables.table import StateInfo, StateTable

__all__ = [
    "Checkpoint",
    "Savepoint",
    "StateInfo",
    "StateTable",
    "history",
]
