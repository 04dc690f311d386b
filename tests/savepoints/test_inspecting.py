"""Inspecting savepoints: their contents, sizes and differences, and where they can be stored."""

import re

import pytest
from savepoint_jobs import Remember, Sum, by_first, environment, numbers, remembered, sums

import penstock
from penstock.common import Types
from penstock.common.time import Duration
from penstock.datastream import KeyedProcessFunction, Savepoint
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.savepoint.format import NotASavepoint, savepoint_storage
from penstock.testing import JobHarness


class Reminder(KeyedProcessFunction):
    """Keeps a value with TTL and a timer for each key."""

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("last", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(60_000)).build())
        self.last = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        self.last.update(value[1])
        ctx.timer_service().register_processing_time_timer(10**13)


def saved(stream, directory, *records, **options):
    job = JobHarness(stream, **options)
    job.push(*records).epoch()
    return Savepoint.load(job.stop_with_savepoint(directory))


def pairs(count, value=1):
    return [(key, value) for key in range(count)]


class TestASavepoint:
    def test_a_savepoint_describes_itself(self, tmp_path):
        env = environment()
        stream = by_first(numbers(env).map(lambda pair: pair).uid("unchanged")).process(Reminder()).uid("remind")
        savepoint = saved(stream, tmp_path, *pairs(10), parallelism=2)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", savepoint.describe())
        text = text.replace(savepoint.metadata.id, "ID").replace(savepoint.metadata.lineage, "LINEAGE")
        text = text.replace(str(tmp_path), "").replace(f"{savepoint.metadata.size:,}", "SIZE")
        collect = next(uid for uid, each in savepoint.operators.items() if each.derived_uid)
        assert text == (
            "savepoint ID of job 'harness', in /savepoint-harness-ID\n"
            f"made TIME UTC by Penstock {penstock.__version__}, of checkpoint 1 of lineage LINEAGE\n"
            "SIZE bytes of keyed state in 6 files\n"
            "\n"
            "operator 'unchanged': Map\n"
            "  no state\n"
            "\n"
            "operator 'remind': Keyed Process\n"
            "  parallelism 2 of at most 128, SIZE bytes in 6 blocks\n"
            "  last: value long, time to live 60000 ms\n"
            "  processing time timers, the first at 10000000000000\n"
            "\n"
            f"operator '{collect}' (derived): Collect\n"
            "  no state\n"
            "\n"
            "source 'numbers': Collection, 10 records"
        )

    def test_a_savepoint_reports_the_size_of_each_state(self, tmp_path):
        sizes = saved(remembered(), tmp_path, *pairs(50), ("more", 1), ("more", 2)).sizes("remember")
        assert {name: size.entries for name, size in sizes.items()} == {"seen": 52, "values": 51}
        assert all(size.bytes > 10 * size.entries for size in sizes.values())

    def test_sizes_include_timers_and_values_with_ttl(self, tmp_path):
        stream = by_first(numbers(environment())).process(Reminder()).uid("remind")
        sizes = saved(stream, tmp_path, *pairs(5)).sizes("remind")
        assert {name: size.entries for name, size in sizes.items()} == {"last": 5, "timers": 5}

    def test_an_unknown_operator_is_refused(self, tmp_path):
        with pytest.raises(PenstockError, match=r"no operator with uid 'count'; it has .*'sum'"):
            saved(sums(), tmp_path, ("a", 1)).sizes("count")

    def test_a_savepoint_lists_differences_from_another(self, tmp_path):
        first = saved(sums(), tmp_path, *pairs(200), parallelism=2)
        job = JobHarness(sums(), parallelism=3, from_savepoint=first.path)
        same = Savepoint.load(job.savepoint(tmp_path))
        assert first.differences(same) == []
        job.push((7, 1)).epoch()
        assert first.differences(Savepoint.load(job.stop_with_savepoint(tmp_path))) == [
            "operator 'sum': parallelism 2 -> 3",
            "operator 'sum': 1 of 16 blocks of keyed state differ",
            "source 'numbers': records 200 -> 201",
        ]
        both = by_first(by_first(numbers(environment(), "others")).process(Sum("x")).uid("sum"))
        other = saved(both.process(Remember()).uid("new"), tmp_path, ("a", 1), parallelism=2)
        lines = first.differences(other)
        assert "operator 'sum': state 'x' none -> value long" in lines
        assert "operator 'new': added" in lines
        assert "source 'numbers': gone" in lines

    def test_savepoints_can_be_listed_and_disposed_of(self, tmp_path, caplog):
        caplog.set_level("INFO", "penstock.tables")
        paths = [saved(sums(), tmp_path, ("a", 1)).path for _ in range(3)]
        assert [found.where for found in Savepoint.list(tmp_path)] == paths
        Savepoint.load(paths[1]).dispose()
        assert caplog.messages == [f"Removed the savepoint in {paths[1]}."]
        assert [found.where for found in Savepoint.list(tmp_path)] == [paths[0], paths[2]]
        with pytest.raises(NotASavepoint):
            Savepoint.load(paths[1])


def test_savepoints_can_be_stored_in_an_object_store(tmp_path):
    directory = f"memory://{tmp_path.name}/savepoints"
    savepoint = saved(remembered(), directory, *pairs(50), parallelism=2)
    assert savepoint.path.startswith(directory)
    with JobHarness(remembered(), parallelism=3, backend="filesystem", from_savepoint=savepoint.path) as job:
        assert job.states("values") == {key: [1] for key in range(50)}
    assert [found.where for found in Savepoint.list(directory)] == [savepoint.path]
    savepoint.dispose()
    assert savepoint_storage(directory).list("") == []
