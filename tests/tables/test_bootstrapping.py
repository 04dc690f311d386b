"""Savepoints written from DataFrames of any kind: jobs start from them as from any other."""

import pandas as pd
import pyarrow as pa
import pytest
from table_jobs import DESCRIPTORS, Everything, Place, Remembering, environment, item, rows

from penstock.common.time import Duration
from penstock.datastream import TimeDomain
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.tables import (
    KeyedStateBootstrapFunction,
    OperatorTransformation,
    Savepoint,
    SavepointWriter,
    StateBootstrapFunction,
)
from penstock.testing import JobHarness

FRAME = pd.DataFrame({"who": ["a", "b", "c"], "n": [1, 2, 3], "due": [10**13, None, 10**13 + 1]})


def restored(stream, path, **options):
    return JobHarness(stream, from_savepoint=str(path), **options)


def only_keyed():
    return environment().from_collection([]).uid("numbers").key_by(lambda p: p[0]).process(Everything()).uid("all")


class TestBootstrapping:
    @pytest.mark.parametrize("make", [lambda f: f, pa.Table.from_pandas, lambda f: f.to_dict("records")])
    def test_a_job_starts_with_state_from_any_kind_of_frame(self, tmp_path, make):
        frame = make(FRAME[["who", "n"]])
        bootstrap = (
            OperatorTransformation.bootstrap_with(frame)
            .key_by("who")
            .state(DESCRIPTORS["count"](), "n")
            .state(DESCRIPTORS["values"](), "n")
            .state(DESCRIPTORS["places"](), lambda row: Place(row["n"], 0.5), map_key=lambda row: f"p{row['n']}")
            .state(DESCRIPTORS["largest"](), "n")
            .state(DESCRIPTORS["mean"](), "n")
            .state(DESCRIPTORS["item"](), lambda row: item(row["n"]))
        )
        path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        with restored(only_keyed(), path, parallelism=2) as job:
            assert job.states("count") == {"a": 1, "b": 2, "c": 3}
            assert job.states("values") == {"a": [1], "b": [2], "c": [3]}
            assert job.states("places") == {k: {f"p{n}": Place(n, 0.5)} for k, n in zip("abc", (1, 2, 3))}
            assert job.states("item") == {k: item(n) for k, n in zip("abc", (1, 2, 3))}
            job.push(("a", 7)).epoch()
            assert job.states("count")["a"] == 2
            assert job.states("values")["a"] == [1, 7]
            assert job.states("largest")["a"] == 7

    def test_bootstrapped_timers_fire(self, tmp_path):
        bootstrap = OperatorTransformation.bootstrap_with(FRAME).key_by("who").state(DESCRIPTORS["count"](), "n")
        bootstrap.timers(lambda row: None if row["due"] is None else int(row["due"]), TimeDomain.PROCESSING_TIME)
        path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        with restored(only_keyed(), path) as job:
            job.set_clock(10**13)
            assert job.output == [("a", 10**13)]
            job.set_clock(10**13 + 1)
            assert job.output == [("a", 10**13), ("c", 10**13 + 1)]

    def test_a_bootstrap_function_writes_states_and_timers(self, tmp_path):
        class Put(KeyedStateBootstrapFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(DESCRIPTORS["count"]())
                self.values = runtime_context.get_list_state(DESCRIPTORS["values"]())

            def process_element(self, value, ctx):
                self.count.update((self.count.value() or 0) + value["n"])
                self.values.add(value["n"])
                ctx.timer_service().register_processing_time_timer(10**13 + value["n"])

        twice = pd.concat([FRAME, FRAME])
        bootstrap = OperatorTransformation.bootstrap_with(twice).key_by("who").transform(Put())
        path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        with restored(only_keyed(), path) as job:
            assert job.states("count") == {"a": 2, "b": 4, "c": 6}
            assert job.states("values")["c"] == [3, 3]
            job.set_clock(10**13 + 2)
            assert sorted(job.output) == [("a", 10**13 + 1), ("b", 10**13 + 2)]

    def test_keys_of_several_columns_are_tuples(self, tmp_path):
        bootstrap = OperatorTransformation.bootstrap_with(FRAME).key_by(["who", "n"]).state(DESCRIPTORS["count"](), "n")
        path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        found = Savepoint.load(path).state("all", "count")
        assert rows(found) == [({"f0": who, "f1": n}, n) for who, n in zip("abc", (1, 2, 3))]

    def test_bootstrapped_values_have_a_ttl(self, tmp_path):
        descriptor = ValueStateDescriptor("fading", str)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(60_000)).build())
        bootstrap = OperatorTransformation.bootstrap_with(FRAME).key_by("who").state(descriptor, "who")
        path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        with restored(only_keyed(), path) as job:
            assert job.states("fading") == {"a": "a", "b": "b", "c": "c"}

    def test_a_bootstrap_function_writes_operator_state(self, tmp_path):
        class Put(StateBootstrapFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.split = store.get_list_state(ListStateDescriptor("split", int))
                self.union = store.get_union_list_state(ListStateDescriptor("union", str))
                self.rules = store.get_broadcast_state(MapStateDescriptor("rules", str, Place))

            def process_element(self, value):
                self.split.add(value["n"])
                self.union.add(value["who"])
                self.rules.put(value["who"], Place(value["n"], 1.0))

        bootstrap = OperatorTransformation.bootstrap_with(FRAME).transform(Put())
        path = SavepointWriter.new_savepoint().with_operator("remember", bootstrap).write(tmp_path / "made")
        found = Savepoint.load(path)
        stream = environment().from_collection([]).uid("numbers").process(Remembering()).uid("remember")
        with restored(stream, path, parallelism=2) as job:
            job.push(("x", 9)).epoch()
            again = Savepoint.load(job.savepoint(tmp_path))
        assert sorted(row["value"] for row in again.state("remember", "split").rows()) == [1, 2, 3, 9]
        rules = {row["map_key"] for row in again.state("remember", "rules").rows()}
        assert rules == {"a", "b", "c", "r9"}
        assert [row["value"] for row in found.state("remember", "union").rows()] == ["a", "b", "c"]

    @pytest.mark.parametrize("maker", ["list_state", "union_list_state"])
    def test_a_column_fills_a_list_state(self, tmp_path, maker):
        start = OperatorTransformation.bootstrap_with(FRAME)
        bootstrap = getattr(start, maker)(ListStateDescriptor("some", int), "n")
        path = SavepointWriter.new_savepoint().with_operator("remember", bootstrap).write(tmp_path / "made")
        assert [row["value"] for row in Savepoint.load(path).state("remember", "some").rows()] == [1, 2, 3]

    def test_a_frame_of_python_objects_can_be_bootstrapped(self, tmp_path):
        frame = pd.DataFrame({"who": ["a", "b"], "what": [item(1), item(2)], "n": [1.0, None]})
        bootstrap = OperatorTransformation.bootstrap_with(frame).key_by("who").state(DESCRIPTORS["item"](), "what")
        bootstrap.state(DESCRIPTORS["largest"](), lambda row: None if row["n"] is None else int(row["n"]))
        path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        with restored(only_keyed(), path) as job:
            assert job.states("item") == {"a": item(1), "b": item(2)}
            assert job.states("largest") == {"a": 1}

    def test_an_unknown_column_is_rejected_with_the_existing_ones(self, tmp_path):
        bootstrap = OperatorTransformation.bootstrap_with(FRAME).key_by("whom").state(DESCRIPTORS["count"](), "n")
        writer = SavepointWriter.new_savepoint().with_operator("all", bootstrap)
        with pytest.raises(Exception, match=r"Column 'whom' does not exist. The columns are \['due', 'n', 'who'\]"):
            writer.write(tmp_path / "made")
        assert not list((tmp_path / "made").glob("*"))
