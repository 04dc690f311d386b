"""One state server among those of a job: what it wants to have, and when it can give up a block.

A server wants the blocks that the division gives to it. It builds them, announces them, and only then does the server
that had them give them up: at every moment, a living server answers for each block. Two servers that both have a block
give the same answers, so a division that they see differently for a moment costs memory but no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.query.announcements import Announcements
from penstock.query.division import ALL_BLOCKS, divide
from penstock.query.protocol import Announcement, Description
from penstock.state.storage import StorageError

_GRACE_BEATS = 2.5
"""How long a server keeps a block that another one has: proxies learn of it with the next beats."""
_LONGEST_GRACE_S = 60.0
"""How long it keeps a block whose new server does not have all of its checkpoints."""


class Plan(NamedTuple):
    """What a server shall have."""

    wanted: frozenset[int]
    dropped: frozenset[int] = frozenset()
    """Blocks that others have, so that the server can give them up."""


class Membership:
    """The part of one state server in one job. Used by one thread at a time."""

    def __init__(
        self,
        announcements: Announcements,
        server: str,
        address: str,
        reach: str,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address` is valid on the host `reach`, or everywhere if that is empty."""
        self._announcements = announcements
        self._server, self._address, self._reach = server, address, reach
        self._grace_s = _GRACE_BEATS * interval_s
        self._clock = clock
        self._beats = 0
        self._known = False
        self._announced = 0
        """The newest checkpoint that was announced last."""
        self._covered: dict[int, float] = {}
        """Blocks that this server does not want and another one has, and since when."""
        self._plan = Plan(frozenset())
        self.others: list[Announcement] = []
        """The other living servers of the job."""
        self.leaving = False

    def beat(self, description: Description, held: int | None) -> Plan:
        """Look at the others, decide and announce. Return what to have.

        Args:
            description: What this server has.
            held: The oldest checkpoint that a reader keeps; None without such a reader.
        """
        try:
            self.others = self._announcements.others()
        except (StorageError, OSError):
            # The others cannot see anything new either.
            return self._plan
        # A server that only its own host can reach is of no use to the others.
        sharing = [each for each in self.others if each.reach == self._reach and not each.leaving]
        wanted = self._part(sharing)
        self._beats += 1
        announcement = Announcement(
            server=self._server,
            beat=self._beats,
            address=self._address,
            reach=self._reach,
            wanted=sorted(wanted),
            leaving=self.leaving,
            description=description,
        )
        if self._announcements.announce(announcement):
            self._known = True
        elif not self._known:
            # The storage is read-only: the others do not know of this server, and leave nothing to it.
            wanted = ALL_BLOCKS
        self._plan = Plan(wanted, self._given_up(description, held, wanted, sharing))
        self._announced = description.newest
        return self._plan

    def leave(self) -> None:
        """Withdraw the announcement. The others take the blocks."""
        self._announcements.withdraw()

    def _part(self, sharing: list[Announcement]) -> frozenset[int]:
        if self.leaving:
            return frozenset() if sharing else self._plan.wanted
        claims = {each.server: frozenset(each.wanted) for each in sharing}
        return divide(claims | {self._server: self._plan.wanted})[self._server]

    def _given_up(
        self, description: Description, held: int | None, wanted: frozenset[int], sharing: list[Announcement]
    ) -> frozenset[int]:
        now = self._clock()
        dropped = set()
        for block, oldest in description.blocks.items():
            found = [
                each.description.blocks[block]
                for each in sharing
                if each.description.lineage == description.lineage
                and each.description.newest >= self._announced
                and block in each.description.blocks
                # Otherwise both could give it up, each because the other one has it.
                and block in each.wanted
            ]
            if block in wanted or not found:
                self._covered.pop(block, None)
                continue
            passed = now - self._covered.setdefault(block, now)
            needed = oldest if held is None else min(held, oldest)
            if passed >= self._grace_s and (
                min(found) <= needed or (passed >= _LONGEST_GRACE_S and (held is None or min(found) <= held))
            ):
                dropped.add(block)
        return frozenset(dropped)
