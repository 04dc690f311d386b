"""Validation of a savepoint's metadata, because a savepoint can come from anywhere and can be crafted.

The hash only proves that the file is unchanged since it was written. The metadata contains file names and list indexes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.common.options.program import MOST_KEY_GROUPS
from penstock.state.shares import GROUPED, group_of

if TYPE_CHECKING:
    from penstock.savepoint.format import Metadata, SavedOperator

_FILE = re.compile(r"state/[0-9a-f]{32}\.arrow")
_LOGGED = re.compile(r"(?!\.)[\w.-]{1,255}")
LOG_FILE = re.compile(r"offsets/\d+|sources/\d+/(?!\.)[\w.-]{1,255}")
"""Allowed names of files in Spark's log, relative to its root."""
_LARGEST = 2**62
_LAST_CHECKPOINT = 10**11
"""Manifest names have twelve digits."""


def contradiction(metadata: Metadata) -> str | None:
    """Describe the first invalid value in a savepoint's metadata, or return None."""
    for uid, operator in metadata.operators.items():
        found = _of_operator(operator)
        if found is not None:
            return f"operator '{uid}' has {found}"
    if not 0 <= metadata.checkpoint < _LAST_CHECKPOINT or not -_LARGEST < metadata.clock < _LARGEST:
        return f"it has checkpoint number {metadata.checkpoint} and clock {metadata.clock}"
    if metadata.batch is not None and not -1 <= metadata.batch < _LARGEST:
        return f"its last batch has the ID {metadata.batch}"
    for uid, source in metadata.sources.items():
        if not 0 <= source.records < _LARGEST:
            return f"source '{uid}' has {source.records} records"
    for uid, lines in metadata.positions.lines.items():
        for line in lines:
            for name in line.files:
                if _LOGGED.fullmatch(name) is None:
                    return f"source '{uid}' has a file {name!r}, which is not a valid name in Spark's log"
            if any(batch < 0 for batch in line.offsets) or any("\n" in text for text in line.offsets.values()):
                return f"source '{uid}' has offsets that cannot be in a Spark log"
    if any(batch < 0 or "\n" in text for batch, text in metadata.positions.batches.items()):
        return "it has batches that cannot be in a Spark log"
    return None


def _of_operator(operator: SavedOperator) -> str | None:
    snapshot = operator.snapshot
    groups = snapshot.max_parallelism
    if groups == snapshot.parallelism == 0:
        # An operator in a source's chain, whose parallelism Spark decides.
        keyed = operator.blocks or operator.block_count or snapshot.in_key_groups
        return "keyed state without key groups" if keyed else None
    if not 1 <= groups <= MOST_KEY_GROUPS or not 1 <= snapshot.parallelism <= MOST_KEY_GROUPS:
        return f"a parallelism of {snapshot.parallelism} and a maximum of {groups}"
    if not 0 <= operator.block_count <= groups:
        return f"{operator.block_count} blocks, but {groups} key groups"
    blocks = operator.all_blocks.numbers
    for number, block in operator.blocks.items():
        if number not in blocks:
            return f"state in block {number}, but only {len(blocks)} blocks"
        if _FILE.fullmatch(block.name) is None or not 0 <= block.size < _LARGEST:
            return f"a block in {block.name!r} with {block.size} bytes, which is not a valid name or size"
    for kind, least in snapshot.timers.items():
        if any(block not in blocks for block in least):
            return f"{kind} timers in a block that does not exist"
    for name, shares in snapshot.operator_state.items():
        if shares.mode == GROUPED:
            for element in (element for elements in shares.by_subtask for element in elements):
                if len(element) < 2 or group_of(element) >= groups:
                    return f"state '{name}' in a key group that does not exist"
    return None
