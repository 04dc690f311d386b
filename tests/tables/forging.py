"""Forge savepoints with valid hashes and hostile contents."""

import os
import pickle
import tempfile

import msgspec

from penstock.checkpoint.manifest import digest_of
from penstock.savepoint.format import (
    METADATA,
    SavedBlock,
    load_savepoint,
    publish_metadata,
    savepoint_storage,
)
from penstock.state.files import GroupChanges, content_name, read_changes, write_changes


class Bomb:
    """Unpickling it creates a directory."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def bomb(marker, protocol=5):
    return pickle.dumps(Bomb(marker), protocol=protocol)


def forged(path, target, change_metadata=None, change_entries=None, change_file=None):
    """Copy a savepoint with changed metadata, entries or files and matching hashes, and return the copy's path."""
    source, storage = savepoint_storage(str(path)), savepoint_storage(str(target))
    metadata = load_savepoint(source)
    operators = {}
    for uid, operator in metadata.operators.items():
        blocks = {}
        for number, block in operator.blocks.items():
            data = source.read(block.name)
            if change_entries is not None:
                data = rewritten(data, change_entries)
            if change_file is not None:
                data = change_file(data)
            name = f"state/{content_name(data)}.arrow"
            storage.write(name, data)
            blocks[number] = SavedBlock(name=name, size=len(data))
        operators[uid] = msgspec.structs.replace(operator, blocks=blocks)
    metadata = msgspec.structs.replace(metadata, operators=operators)
    publish_metadata(storage, metadata if change_metadata is None else change_metadata(metadata))
    return str(target)


def rewritten(data, change):
    with tempfile.TemporaryFile() as file:
        groups = (
            GroupChanges(each.group, [], sorted(dict(change(each.group, each.entries)).items()))
            for each in read_changes(data)
        )
        write_changes(groups, file)
        file.seek(0)
        return file.read()


def replaced_everywhere(value, poison):
    """Yield every copy of a built-in value in which one string or bytes is replaced by the poison."""
    if isinstance(value, bytes):
        yield poison
    elif isinstance(value, str):
        yield poison.decode("latin-1")
    elif isinstance(value, dict):
        for key, item in value.items():
            for changed in replaced_everywhere(item, poison):
                yield {**value, key: changed}
            if isinstance(key, str):
                rest = {other: each for other, each in value.items() if other != key}
                yield {**rest, poison.decode("latin-1"): item}
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            for changed in replaced_everywhere(item, poison):
                yield [*value[:place], changed, *value[place + 1 :]]


def write_metadata(path, body):
    with open(f"{path}/{METADATA}", "wb") as file:
        file.write(b"PENSTOCK SAVEPOINT\n" + digest_of(body) + body)
