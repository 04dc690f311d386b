"""The manifest: published once, by one driver, and always read back exactly as published."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.manifest import (
    FORMAT,
    BadManifest,
    BaseHandle,
    Committable,
    Fenced,
    Manifest,
    OperatorSnapshot,
    digest_of,
    latest,
    load,
    manifest_name,
    publish,
)
from penstock.runtime.report import DeltaHandle
from penstock.state.blocks import Blocks
from penstock.state.driver_storage import DriverStorage
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import MissingObject


def manifest(number=1, parent=b"", token="driver", **fields):
    values = {
        "format": FORMAT,
        "lineage": "lineage",
        "id": number,
        "batch": number - 1,
        "parent": parent,
        "token": token,
        "timestamp": 1555516800000,
        "ended": False,
        "operators": {},
        "committables": [],
        "records": {"source": 10 * number},
        "spark_log": {f"offsets/{number - 1}": b"v1"},
        "log_index": {f"offsets/{number - 1}": number},
        "bases": {},
        "since_base": {},
    }
    return Manifest(**{**values, **fields})


def publish_chain(storage, length):
    """Publish checkpoints 1 to `length`, each on its parent, and return their versions."""
    versions = []
    for number in range(1, length + 1):
        versions.append(publish(storage, manifest(number, versions[-1].digest if versions else b"")))
    return versions


@pytest.fixture(params=["files", "memory"])
def storage(request, tmp_path):
    return LocalStorage(str(tmp_path)) if request.param == "files" else DriverStorage()


@pytest.fixture
def files(tmp_path):
    return LocalStorage(str(tmp_path))


def overwrite(files, tmp_path, number, data):
    (tmp_path / manifest_name(number)).write_bytes(data)


class TestPublishing:
    def test_a_published_manifest_is_read_back_unchanged(self, storage):
        complete = manifest(
            operators={
                "c": OperatorSnapshot(
                    name="count",
                    parallelism=2,
                    max_parallelism=128,
                    states={"n": "value long"},
                    deltas=[DeltaHandle(name="d", size=9, entries=1, blocks=[3], inline=b"x")],
                )
            },
            committables=[Committable(uid="sink", subtask=0, payload=b"page")],
            bases={"c": {24: BaseHandle(id=1, name="bases/1/x", size=100, end=32)}},
            since_base={"c": {0: 9}},
            blocks={"c": Blocks(max_parallelism=128, count=16)},
            batch=None,
            ended=True,
        )
        version = publish(storage, complete)
        assert load(storage, 1, version.digest) == (complete, version)
        assert latest(storage) == (complete, version)

    def test_the_second_driver_to_publish_is_fenced(self, storage):
        first = publish(storage, manifest(token="first"))
        with pytest.raises(
            Fenced, match="Checkpoint 1 of this job is already published: another driver is running the job"
        ):
            publish(storage, manifest(token="second"))
        assert latest(storage) == (manifest(token="first"), first)

    def test_a_driver_is_fenced_even_by_an_equal_manifest(self, storage):
        publish(storage, manifest())
        with pytest.raises(Fenced):
            publish(storage, manifest())

    def test_a_version_identifies_its_content(self, storage):
        here = publish(storage, manifest())
        assert publish(DriverStorage(), manifest()) == here
        assert publish(DriverStorage(), manifest(token="another")) != here

    def test_the_size_of_state_includes_bases_and_deltas_since(self):
        bases = {"c": {0: BaseHandle(id=1, name="a", size=100), 5: BaseHandle(id=1, name="b", size=20)}}
        assert manifest(bases=bases, since_base={"c": {0: 1, 5: 2}}).state_bytes("c") == 123
        assert manifest().state_bytes("c") == 0

    def test_a_manifest_from_before_types_had_versions_is_readable(self, storage):
        operators = {
            "sum": OperatorSnapshot(
                name="Sum", parallelism=1, max_parallelism=128, states={"total": "value long"}, deltas=[]
            )
        }
        publish(storage, manifest(format=2, operators=operators))
        assert latest(storage)[0].operators["sum"].migrations == {}

    def test_a_manifest_without_sources_savepoints_and_rescales_is_readable(self, files, tmp_path):
        version = publish(files, manifest(sources=["source"], claimed=("id", "path"), rescaled={"sum": (2, 4)}))
        fields = msgspec.msgpack.decode((tmp_path / manifest_name(version.id)).read_bytes()[16:])
        body = msgspec.msgpack.encode(fields[: Manifest.__struct_fields__.index("sources")])
        overwrite(files, tmp_path, version.id, digest_of(body) + body)
        assert load(files, version.id)[0] == manifest()


class TestChain:
    def test_the_last_manifest_is_the_latest(self, storage):
        versions = publish_chain(storage, 11)
        assert latest(storage) == (manifest(11, versions[9].digest), versions[10])

    def test_a_lineage_without_a_manifest_has_no_latest(self, storage):
        assert latest(storage) is None

    def test_the_chain_can_be_walked_from_child_to_parent_by_hash(self, storage):
        publish_chain(storage, 5)
        found, version = latest(storage)
        walked = [version.id]
        while found.parent:
            found, version = load(storage, found.id - 1, found.parent)
            walked.append(version.id)
        assert walked == [5, 4, 3, 2, 1]

    def test_a_replaced_parent_is_detected(self, files, tmp_path):
        publish_chain(files, 3)
        other = LocalStorage(str(tmp_path / "other"))
        publish(other, manifest(2, token="another history"))
        overwrite(files, tmp_path, 2, other.read(manifest_name(2)))
        with pytest.raises(BadManifest, match=r"manifests/0*2 in .* was replaced by another"):
            latest(files)

    def test_a_missing_parent_is_detected(self, files, tmp_path):
        publish_chain(files, 3)
        (tmp_path / manifest_name(2)).unlink()
        with pytest.raises(MissingObject, match=r"manifests/0*2"):
            latest(files)


class TestDamage:
    @given(place=st.floats(0, 0.999), bit=st.integers(0, 7))
    def test_any_flipped_bit_is_detected(self, place, bit):
        storage = DriverStorage()
        publish(storage, manifest())
        data = bytearray(storage.read(manifest_name(1)))
        data[int(place * len(data))] ^= 1 << bit
        storage.write(manifest_name(1), bytes(data))
        with pytest.raises(BadManifest, match=r"manifests/0*1 in .* is damaged"):
            latest(storage)

    @pytest.mark.parametrize("keep", [0, 5, 40])
    def test_a_truncated_file_is_detected(self, files, tmp_path, keep):
        publish(files, manifest())
        overwrite(files, tmp_path, 1, files.read(manifest_name(1))[:keep])
        with pytest.raises(BadManifest, match=r"manifests/0*1 in .* is damaged"):
            latest(files)

    def test_a_file_under_another_number_is_detected(self, files, tmp_path):
        publish_chain(files, 2)
        overwrite(files, tmp_path, 3, files.read(manifest_name(2)))
        with pytest.raises(BadManifest, match=r"manifests/0*3 in .* holds checkpoint 2: it was renamed or copied"):
            latest(files)

    def test_a_newer_format_is_refused(self, files, tmp_path):
        body = msgspec.msgpack.encode([FORMAT + 1, "whatever a later version writes"])
        overwrite_new(tmp_path, 1, body)
        message = rf"manifests/0*1 in .* has format {FORMAT + 1}; .* Penstock reads formats 2 to {FORMAT}. Run the"
        with pytest.raises(BadManifest, match=message):
            latest(files)

    def test_other_content_in_the_right_format_is_refused(self, files, tmp_path):
        overwrite_new(tmp_path, 1, msgspec.msgpack.encode([FORMAT, 1, 2, 3]))
        with pytest.raises(BadManifest, match=r"manifests/0*1 in .* cannot be read"):
            latest(files)

    def test_a_file_that_is_not_a_manifest_is_refused(self, files, tmp_path):
        overwrite_new(tmp_path, 1, msgspec.msgpack.encode({"not": "a manifest"}))
        with pytest.raises(BadManifest, match=r"manifests/0*1 in .* has format None"):
            latest(files)


def overwrite_new(tmp_path, number, body):
    """Write a file with a matching hash and any content."""
    path = tmp_path / manifest_name(number)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(digest_of(body) + body)
