"""One instance of each stored structure with every field set, to compare with the formats on disk."""

from penstock.checkpoint.manifest import BaseHandle, Committable, Manifest, OperatorSnapshot, StateAddress, Version
from penstock.connectors.files.part_files import Chunk, FinishedPart, Part, Prepared
from penstock.connectors.write_ahead import Piece
from penstock.runtime.event_time import ChannelTime, OperatorTime
from penstock.runtime.report import DeltaHandle
from penstock.savepoint.format import Metadata, SavedBlock, SavedOperator, SavedSource
from penstock.savepoint.positions import Line, Positions
from penstock.state.blocks import Blocks
from penstock.state.shares import Shares
from penstock.state.ttl import Form

TIME = OperatorTime(
    subtasks=[17, 18],
    idle=True,
    channels={"split 1": ChannelTime(watermark=16, active_at=1_700_000_000_000, idle=True)},
    ended=True,
    idle_subtasks=[True, False],
    active_at=[1_700_000_000_001],
    reached=19,
)

SNAPSHOT = OperatorSnapshot(
    name="count them",
    parallelism=2,
    max_parallelism=128,
    states={"n": "value int"},
    deltas=[
        DeltaHandle(name="deltas/000000000007/ab.arrow", size=300, entries=4, blocks=[0, 3], inline=None),
        DeltaHandle(name="cd.arrow", size=5, entries=1, blocks=[1], inline=b"delta"),
    ],
    operator_state={"offsets": Shares(mode="split", schema="int", by_subtask=[[b"\x01"], []], migrations=(b"m",))},
    timers={"event": {0: 12, 3: 15}},
    ttl={
        "n": Form(event_time=True, ttl_ms=60_000, is_list=False, since=(5, 6), in_bases=True, in_compaction=True),
    },
    migrations={"n": (b"one", b"two")},
    key_type="str",
)

MANIFEST = Manifest(
    format=4,
    lineage="lineage-1",
    id=7,
    batch=5,
    parent=b"0123456789abcdef",
    token="token-1",
    timestamp=1_700_000_000_002,
    ended=True,
    operators={"count": SNAPSHOT},
    committables=[Committable(uid="out", subtask=1, payload=b"page")],
    records={"words": 42},
    spark_log={"offsets/5": b"v1\n{}\n3"},
    log_index={"offsets/5": 7, "offsets/4": 6},
    bases={"count": {24: BaseHandle(id=4, name="bases/000000000004/ef.arrow", size=900, end=32)}},
    since_base={"count": {3: 150}},
    times={"count": TIME},
    sources=["words", "clicks"],
    claimed=("savepoint-1", "/savepoints/savepoint-1"),
    rescaled={"count": (2, 4)},
    blocks={"count": Blocks(max_parallelism=128, count=16)},
    queryable={"counts": StateAddress(uid="count", state="n")},
    backend="rocksdb",
)

METADATA = Metadata(
    format=3,
    penstock="0.1",
    id="savepoint-1",
    job="counting",
    created=1_700_000_000_003,
    clock=1_700_000_000_002,
    lineage="lineage-1",
    checkpoint=7,
    batch=5,
    operators={
        "count": SavedOperator(
            snapshot=SNAPSHOT,
            derived_uid=True,
            blocks={3: SavedBlock(name="state/0123456789abcdef0123456789abcdef.arrow", size=900)},
            block_count=16,
        )
    },
    sources={"words": SavedSource(name="Words", derived_uid=True, records=42, reader="rows", copied=True)},
    positions=Positions(batches={5: "{}"}, lines={"words": [Line(offsets={5: "3"}, files={"0": b"v1"})]}),
    times={"count": TIME},
    queryable={"counts": StateAddress(uid="count", state="n")},
)

PART = Part(
    base="/out",
    format="lines",
    bucket="2026",
    id="7-1-0",
    created=11,
    written=12,
    chunks=[Chunk(path="2026/.part-7-1-0", size=10, level=2)],
)

PREPARED = Prepared(
    base="/out",
    token="token-1",
    ended=True,
    parts=[FinishedPart(base="/out", hidden=".part-7-1-0", final="part-7-1-0", size=10, chunks=["a", "b"])],
    merged=["c"],
)

SAMPLES = {
    "manifest": MANIFEST,
    "version": Version(id=7, digest=b"0123456789abcdef"),
    "savepoint": METADATA,
    "unfinished-part": PART,
    "prepared-parts": PREPARED,
    "write-ahead-pieces": [Piece(name="wal/7/ab", size=9, chunks=2, inline=b"x")],
}
