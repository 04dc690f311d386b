"""The receiving side of a task: spools buffers, checks them against barriers, returns them in a fixed order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

from penstock.errors import PenstockError
from penstock.runtime.report import EdgeTotals, channel_fingerprint, summed
from penstock.runtime.rows import Barrier, Buffer, ExchangeRow, add_checksum, decode_barrier, decode_buffer, edge_of

MEMORY_BUDGET = 256 * 1024 * 1024
"""Bytes of buffers held in memory by one task; the rest of an epoch waits in a local file."""


class Misaligned(PenstockError):
    """The buffers that arrived do not match the barriers: a buffer was lost, duplicated or is from another epoch.

    Operator action: none; the epoch runs again. If it recurs, the shuffle service loses data: check its logs.
    """


class UpstreamFailed(Exception):
    """A producer failed and reports its own failure to the driver, so this task ends silently."""


class Inbox:
    """Collects a task's input for one epoch.

    Order of calls: `add_buffer` and `add_barrier` for every row, `align` once, then `buffers`, then `totals`.
    """

    def __init__(self, epoch: int, expected: list[int], budget: int = MEMORY_BUDGET) -> None:
        """`expected` has the channels that must close. Sources can have more; only Spark knows how many."""
        self._epoch = epoch
        self._expected = expected
        self._budget = budget
        self._held = 0
        self._file: IO[bytes] | None = None
        self._arrived: list[tuple[int, int, bytes | tuple[int, int]]] = []
        self._barriers: dict[int, Barrier] = {}
        self._checksums: dict[int, int] = {}
        self._records: dict[int, int] = {}
        self.bytes = 0
        """Bytes of all buffers, without barriers."""

    def add_buffer(self, row: ExchangeRow) -> None:
        payload = row.payload
        self.bytes += len(payload)
        self._checksums[row.channel] = add_checksum(self._checksums.get(row.channel, 0), payload, row.seq)
        if self._held + len(payload) <= self._budget:
            self._held += len(payload)
            self._arrived.append((row.seq, row.channel, payload))
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="penstock-inbox-")  # noqa: SIM115  closed in close()
        place = self._file.seek(0, 2)
        self._file.write(payload)
        self._arrived.append((row.seq, row.channel, (place, len(payload))))

    def add_barrier(self, row: ExchangeRow) -> None:
        if row.channel in self._barriers:
            raise Misaligned(f"Channel {row.channel:#x} was closed twice in epoch {self._epoch}.")
        self._barriers[row.channel] = decode_barrier(row.payload)

    def align(self) -> None:
        """Check that every channel is closed and complete. Raises UpstreamFailed if a producer failed."""
        if any(barrier.failed for barrier in self._barriers.values()):
            raise UpstreamFailed
        missing = set(self._expected) - set(self._barriers)
        if missing:
            raise Misaligned(f"Epoch {self._epoch}: no barrier from channels {sorted(map(hex, missing))}.")
        # By (seq, channel): this keeps the order within a channel, advances channels together, and makes the order
        # independent of the order of arrival.
        self._arrived.sort(key=lambda buffer: (buffer[0], buffer[1]))
        seen: dict[int, int] = {}
        for seq, channel, _ in self._arrived:
            if seq != seen.get(channel, 0):
                what = "twice" if seq < seen.get(channel, 0) else "after a gap"
                raise Misaligned(f"Epoch {self._epoch}: buffer {seq} of channel {channel:#x} arrived {what}.")
            seen[channel] = seq + 1
        for channel, barrier in self._barriers.items():
            if barrier.epoch != self._epoch:
                raise Misaligned(f"A barrier of epoch {barrier.epoch} arrived in epoch {self._epoch}.")
            if barrier.buffers != seen.pop(channel, 0):
                raise Misaligned(
                    f"Epoch {self._epoch}: channel {channel:#x} closed after {barrier.buffers} buffers, "
                    f"but a different number arrived."
                )
            if barrier.checksum != self._checksums.get(channel, 0):
                raise Misaligned(f"Epoch {self._epoch}: the buffers of channel {channel:#x} fail their checksum.")
        if seen:
            raise Misaligned(f"Epoch {self._epoch}: no barrier closes channels {sorted(map(hex, seen))}.")

    def buffers(self) -> Iterator[tuple[int, Buffer]]:
        """Yield (channel, buffer) in order. Each buffer is released once it is yielded."""
        arrived = self._arrived
        for index, (seq, channel, held) in enumerate(arrived):
            arrived[index] = (seq, channel, b"")
            if isinstance(held, tuple):
                assert self._file is not None
                self._file.seek(held[0])
                held = self._file.read(held[1])
            yield channel, decode_buffer(held)

    def events(self) -> Iterator[tuple[int, Buffer | Barrier]]:
        """Like `buffers`, with each channel's barrier after its last buffer."""
        ends = sorted((barrier.buffers, channel) for channel, barrier in self._barriers.items())
        ends.reverse()
        places = [(seq, channel) for seq, channel, _ in self._arrived]
        for place, (channel, buffer) in zip(places, self.buffers(), strict=True):
            while ends and ends[-1] < place:
                ended = ends.pop()[1]
                yield ended, self._barriers[ended]
            yield channel, buffer
        while ends:
            ended = ends.pop()[1]
            yield ended, self._barriers[ended]

    def barriers(self) -> dict[int, Barrier]:
        return self._barriers

    def count(self, channel: int, records: int) -> None:
        self._records[channel] = self._records.get(channel, 0) + records

    def totals(self, target: int) -> list[EdgeTotals]:
        """Return the totals received by edge, after all buffers were read. Raises Misaligned if a count is wrong."""
        channels = []
        for channel, barrier in sorted(self._barriers.items()):
            records = self._records.get(channel, 0)
            if records != barrier.records:
                raise Misaligned(
                    f"Epoch {self._epoch}: channel {channel:#x} sent {barrier.records} records, {records} arrived."
                )
            fingerprint = channel_fingerprint(channel, target, barrier.buffers, records, barrier.checksum)
            channels.append(
                EdgeTotals(
                    edge=edge_of(channel),
                    channels=1,
                    buffers=barrier.buffers,
                    records=records,
                    fingerprint=fingerprint,
                )
            )
        return list(summed(channels).values())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._arrived.clear()
