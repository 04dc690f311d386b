"""How a replica advances to a version: which changes an engine receives."""

from penstock.state.blocks import blocks_for
from penstock.state.engines.memory import MemoryEngine
from penstock.state.files import GroupChanges, encode_changes
from penstock.state.replica import ReplayStep, Replicas


class Twice(MemoryEngine):
    """Iterates over the changes twice, as an engine does that must start over."""

    def apply(self, expect, changes, position):
        self.first = list(changes)
        return super().apply(expect, changes, position)


class History:
    wanted = b"version 2"

    def keep(self, uid, block):
        return None

    def steps(self, uid, groups, position):
        deltas = [[GroupChanges(0, [], [(b"\0\0a", b"1")])], [GroupChanges(0, [b"\0\0b"], [(b"\0\0a", b"2")])]]
        return [ReplayStep(f"delta {number}", encode_changes(delta), groups) for number, delta in enumerate(deltas)]


def test_an_engine_can_iterate_over_the_changes_twice():
    engine = Twice()
    replicas = Replicas("uid", blocks_for(1, 1), History(), lambda uid, groups: engine)
    assert replicas.reader(0).get(b"\0\0a") == b"2"
    assert [change.entries for change in engine.first] == [[(b"\0\0a", b"1")], [(b"\0\0a", b"2")]]
    replicas.close()
