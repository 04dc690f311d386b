"""Builds graphs from programs: uids, chains, levels, targets, the plan, and programs refused before Spark starts."""

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

from penstock.datastream import (
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.checks import warn_of_derived_uids
from penstock.datastream.connectors import Sink
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.graph.builder import build
from penstock.graph.logical import FORWARD, GraphError, Input, LogicalGraph, Partitioning, SourceSpec
from penstock.graph.ship import NotShippable
from penstock.runtime.map_operators import MapOperator
from penstock.testing import JobHarness


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def physical(env, parallelism=2, **options):
    return build(env._graph, parallelism, **options)


def chains(env, **options):
    """Return the level and the operator names of every chain."""
    return [(chain.level, chain.name) for chain in physical(env, **options).chains]


def edges(env, **options):
    """Return sender, kind and receiver of every exchange."""
    graph = physical(env, **options)
    return [(graph.chains[edge.from_chain].name, edge.kind, graph.chains[edge.to_chain].name) for edge in graph.edges]


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value, n


def identity(value):
    return value


class TestUids:
    def test_a_given_uid_identifies_the_operator(self, env):
        env.from_collection([1]).uid("numbers").map(identity).uid("same").print().uid("out")
        env._graph.resolve_uids()
        assert [node.uid for node in env._graph.nodes.values()] == ["numbers", "same", "out"]

    def test_other_uids_are_derived_and_returned(self, env):
        env.from_collection([1]).uid("numbers").map(identity).print().uid("out")
        derived = env._graph.resolve_uids()
        assert [node.name for node in derived] == ["Map"]
        assert derived[0].uid not in ("", "numbers", "out")

    def program(self, env):
        numbers = env.from_collection([1, 2])
        left, right = numbers.map(lambda n: n), numbers.map(lambda n: n)
        left.union(right).key_by(lambda n: n).process(Count()).print()
        env._graph.resolve_uids()
        return [node.uid for node in env._graph.nodes.values()]

    def test_identical_operators_get_different_uids(self, env):
        uids = self.program(env)
        assert len(set(uids)) == len(uids) == 5

    def test_a_derived_uid_is_the_same_in_every_process(self, env):
        script = textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
            import test_graph
            from penstock.datastream import StreamExecutionEnvironment
            env = StreamExecutionEnvironment.get_execution_environment()
            print(" ".join(test_graph.TestUids().program(env)))
            """
        )
        there = run_script(script, PYTHONHASHSEED="17").stdout.split()
        assert there == self.program(env)

    def test_an_operator_with_state_but_without_uid_causes_a_warning_if_checkpoints_are_kept(self, env):
        env.from_collection([1]).map(identity).key_by(identity).process(Count()).name("count")
        env._graph.resolve_uids()
        with pytest.warns(
            UserWarning, match=r"hold state but have no uid.*'count' \([0-9a-f]{16}\)\. If.*\.uid\('name'\)"
        ):
            warn_of_derived_uids(env._graph, "/checkpoints")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_derived_uids(env._graph, None)

    def test_a_derived_uid_depends_on_upstream_but_not_on_downstream_operators(self):
        def uid_of_map(change):
            env = StreamExecutionEnvironment.get_execution_environment()
            stream = env.from_collection([1])
            if change == "before":
                stream = stream.filter(identity)
            stream = stream.map(identity)
            node = stream._node
            if change == "after":
                stream.print()
            env._graph.resolve_uids()
            return node.uid

        assert uid_of_map("nothing") == uid_of_map("after") != uid_of_map("before")

    def test_duplicate_uids_are_refused_and_both_operators_named(self, env):
        env.from_collection([1]).map(identity).name("first").uid("x").map(identity).name("second").uid("x")
        message = r"'first' and 'second' have the same uid 'x'.*Set a different uid on one of them"
        with pytest.raises(GraphError, match=message):
            physical(env)

    @pytest.mark.parametrize("uid", ["", 5, None])
    def test_a_uid_must_be_a_non_empty_string(self, env, uid):
        with pytest.raises(GraphError, match="A uid must be a non-empty string"):
            env.from_collection([1]).uid(uid)

    def test_a_union_and_a_keyed_stream_are_not_operators(self, env):
        one, other = env.from_collection([1]), env.from_collection([2])
        with pytest.raises(GraphError, match="union is not an operator"):
            one.union(other).uid("u")
        with pytest.raises(GraphError, match="key_by is not an operator"):
            one.key_by(identity).uid("k")


class TestCycles:
    def cyclic(self):
        graph = LogicalGraph()
        graph.add("source", source=SourceSpec("chunks", [], bounded=True))
        forward = Partitioning(FORWARD)
        first = graph.add("first", operator=MapOperator(identity), inputs=[Input(0, forward)])
        graph.add("second", operator=MapOperator(identity), inputs=[Input(1, forward)])
        first.inputs.append(Input(2, forward))
        return graph

    def test_a_cycle_is_refused_and_its_operators_named(self):
        with pytest.raises(GraphError, match="cycle: 'first' -> 'second' -> 'first'"):
            build(self.cyclic(), 1)

    def test_an_operator_that_feeds_itself_is_refused(self):
        graph = self.cyclic()
        graph.nodes[1].inputs = [Input(1, Partitioning(FORWARD))]
        with pytest.raises(GraphError, match="cycle: 'first' -> 'first'"):
            build(graph, 1)

    def test_two_paths_to_one_operator_are_not_a_cycle(self, env):
        numbers = env.from_collection([1])
        numbers.map(identity).union(numbers.filter(identity)).map(identity)
        assert len(physical(env).chains) == 2


class TestChaining:
    def test_stateless_operators_run_in_the_sources_chain(self, env):
        env.from_collection([1]).map(identity).filter(identity).print()
        assert chains(env) == [(0, "Collection -> Map -> Filter -> Print to Std. Out")]
        assert edges(env) == []

    def test_key_by_starts_a_new_chain_and_operators_of_equal_parallelism_join_it(self, env):
        env.from_collection([1]).map(identity).key_by(identity).process(Count()).map(identity).print()
        assert chains(env) == [(0, "Collection -> Map"), (1, "Keyed Process -> Map -> Print to Std. Out")]
        assert edges(env) == [("Collection -> Map", "key", "Keyed Process -> Map -> Print to Std. Out")]

    def test_another_parallelism_starts_a_new_chain_with_a_rebalance(self, env):
        keyed = env.from_collection([1]).key_by(identity).process(Count())
        keyed.map(identity).set_parallelism(3)
        assert chains(env) == [(0, "Collection"), (1, "Keyed Process"), (2, "Map")]
        assert edges(env)[1] == ("Keyed Process", "rebalance", "Map")

    def test_an_explicit_but_equal_parallelism_does_not_start_a_new_chain(self, env):
        env.from_collection([1]).key_by(identity).process(Count()).map(identity).set_parallelism(2)
        assert chains(env) == [(0, "Collection"), (1, "Keyed Process -> Map")]

    def test_disabled_chaining_makes_every_operator_a_chain_and_forwards_at_equal_parallelism(self, env):
        env.from_collection([1]).map(identity).filter(identity).print()
        assert chains(env, chaining=False) == [(0, "Collection"), (1, "Map"), (2, "Filter"), (3, "Print to Std. Out")]
        assert edges(env, chaining=False) == [
            ("Collection", "rebalance", "Map"),
            ("Map", "forward", "Filter"),
            ("Filter", "forward", "Print to Std. Out"),
        ]

    def test_an_explicit_parallelism_behind_a_source_starts_a_new_task(self, env):
        # Spark chooses the number of a source's partitions: only an exchange lets an operator have its own parallelism.
        env.from_collection([1]).map(identity).set_parallelism(2).filter(identity)
        assert chains(env) == [(0, "Collection"), (1, "Map -> Filter")]
        assert edges(env)[0] == ("Collection", "rebalance", "Map -> Filter")

    @pytest.mark.parametrize(
        "question", ["get_index_of_this_subtask", "get_number_of_parallel_subtasks", "get_task_name_with_subtasks"]
    )
    def test_an_operator_that_requests_its_subtask_starts_a_new_task(self, env, question):
        asking = {
            "get_index_of_this_subtask": lambda self, ctx: ctx.get_index_of_this_subtask(),
            "get_number_of_parallel_subtasks": lambda self, ctx: ctx.get_number_of_parallel_subtasks(),
            "get_task_name_with_subtasks": lambda self, ctx: ctx.get_task_name_with_subtasks(),
        }[question]
        function = type("Asking", (MapFunction,), {"open": asking, "map": lambda self, value: value})()
        env.from_collection([1]).map(identity).map(function)
        assert chains(env) == [(0, "Collection -> Map"), (1, "Map")]

    def test_an_operator_with_two_consumers_is_chained_with_both(self, env):
        shared = env.from_collection([1]).map(identity).name("shared")
        shared.map(identity).name("left")
        shared.map(identity).name("right")
        (chain,) = physical(env).chains
        parents = [operator.parent for operator in chain.operators]
        assert ([operator.name for operator in chain.operators], parents) == (["shared", "left", "right"], [None, 0, 0])

    def test_a_union_starts_a_new_chain(self, env):
        env.from_collection([1]).name("a").union(env.from_collection([2]).name("b")).map(identity)
        assert edges(env) == [("a", "rebalance", "Map"), ("b", "rebalance", "Map")]


class TestLevels:
    def skipping(self, env):
        """Return a program in which `late` joins two levels further down."""
        early = env.from_collection(["a", "b"]).name("early").key_by(identity).process(Count()).name("count")
        late = env.from_collection([("a", 100)]).name("late")
        joined = early.union(late).key_by(lambda pair: pair[0]).process(lambda pair, ctx: [pair]).name("join")
        return joined

    def test_a_chain_is_one_level_below_its_deepest_input(self, env):
        self.skipping(env)
        assert chains(env) == [(0, "early"), (1, "count"), (0, "late"), (2, "join")]
        assert physical(env).levels == [[0, 2], [1], [3]]

    @pytest.mark.parametrize("parallelism", [1, 2, 5])
    def test_an_edge_that_skips_a_level_passes_through_it(self, env, parallelism):
        with JobHarness(self.skipping(env), parallelism=parallelism) as job:
            assert sorted(job.run()) == [("a", 1), ("a", 100), ("b", 1)]

    def test_targets_enumerate_chains_and_subtasks_of_a_level(self, env):
        numbers = env.from_collection([1])
        numbers.key_by(identity).process(Count()).name("narrow").set_parallelism(2)
        numbers.key_by(identity).process(Count()).name("wide").set_parallelism(3)
        graph = physical(env)
        assert graph.targets(1) == 5
        assert [(chain.name, subtask) for chain, subtask in (graph.at_target(1, target) for target in range(5))] == [
            ("narrow", 0),
            ("narrow", 1),
            ("wide", 0),
            ("wide", 1),
            ("wide", 2),
        ]
        assert graph.subtasks() == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


class TestParallelism:
    @pytest.mark.parametrize(("parallelism", "groups"), [(1, 128), (85, 128), (86, 256), (200, 512)])
    def test_the_default_number_of_key_groups_depends_on_the_parallelism(self, env, parallelism, groups):
        env.from_collection([1]).key_by(identity).process(Count())
        assert physical(env, parallelism).chains[1].max_parallelism == groups

    def test_an_operators_max_parallelism_overrides_the_environments(self, env):
        env.from_collection([1]).key_by(identity).process(Count()).set_max_parallelism(13)
        assert physical(env, max_parallelism=64).chains[1].max_parallelism == 13

    def test_more_subtasks_than_key_groups_are_refused_by_name(self, env):
        env.from_collection([1]).key_by(identity).process(Count()).uid("c").set_max_parallelism(2).set_parallelism(3)
        with pytest.raises(GraphError, match=r"'Keyed Process' \(uid 'c'\): The parallelism is 3.*max parallelism, 2"):
            physical(env)

    def test_key_groups_beyond_two_bytes_are_refused_by_name(self, env):
        env.from_collection([1]).key_by(identity).process(Count()).uid("c").set_max_parallelism(40_000)
        with pytest.raises(GraphError, match=r"\(uid 'c'\): The max parallelism is 40000, but must be from 1 to 32768"):
            physical(env)

    def test_more_subtasks_than_the_maximum_number_of_key_groups_are_refused(self, env):
        env.from_collection([1]).map(identity).uid("m").set_parallelism(40_000)
        with pytest.raises(GraphError, match=r"\(uid 'm'\): The parallelism is 40000"):
            physical(env)

    @pytest.mark.parametrize("number", [0, -1, 1.5, "2"])
    def test_an_invalid_parallelism_is_refused(self, env, number):
        with pytest.raises(GraphError, match="must be an int of at least 1"):
            env.from_collection([1]).map(identity).set_parallelism(number)

    def test_the_parallelism_of_a_source_limits_its_tasks_and_no_operator_after_it(self, env):
        env.from_collection([1]).set_parallelism(2).map(identity).rebalance().map(identity)
        source, after = build(env._graph, 3).chains
        assert (source.tasks, source.own_parallelism, len(source.operators)) == (2, True, 1)
        assert (after.parallelism, after.own_parallelism) == (3, False)


def asking_for(getter):
    """Return a MapFunction whose open() calls a getter of the runtime context."""
    namespace = {}
    exec(f"def open(self, runtime_context):\n    self.state = runtime_context.{getter}(None)\n", namespace)
    return type("Asks", (MapFunction,), {"open": namespace["open"], "map": lambda self, value: value})()


class Registry:
    """Not the runtime context, despite the names of its methods."""

    def get_state(self, name):
        return {"name": name}


class UsesRegistry(MapFunction):
    def open(self, runtime_context):
        self.registry = Registry()
        self.state = self.registry.get_state("mine")
        runtime_context = Registry()
        self.other = runtime_context.get_state("too")

    def map(self, value):
        return value, self.state["name"], self.other["name"]


class HidesItsState(MapFunction):
    def open(self, runtime_context):
        self.set_up(runtime_context)

    def set_up(self, context):
        self.n = context.get_state(ValueStateDescriptor("hidden", int))

    def map(self, value):
        return value


class TestKeyedStateNeedsAKey:
    @pytest.mark.parametrize(
        "getter", ["get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"]
    )
    def test_state_in_open_without_key_by_is_refused_when_the_graph_is_built(self, env, getter):
        env.from_collection([1]).map(asking_for(getter)).name("counter").uid("c")
        message = rf"'counter' \(uid 'c'\) requests keyed state \(open\(\) calls {getter}\), .*key_by"
        with pytest.raises(GraphError, match=message):
            physical(env)

    @pytest.mark.parametrize("getter", ["get_state", "get_map_state"])
    def test_state_in_open_is_allowed_on_a_keyed_stream(self, env, getter):
        env.from_collection([1]).key_by(identity).map(asking_for(getter))
        assert len(physical(env).chains) == 2

    def test_the_stream_after_a_keyed_operator_is_not_keyed(self, env):
        env.from_collection([1]).key_by(identity).process(Count()).map(asking_for("get_state"))
        with pytest.raises(GraphError, match="requests keyed state"):
            physical(env)

    def test_a_keyed_process_function_without_key_by_is_refused(self, env):
        with pytest.raises(GraphError, match=r"Count is a KeyedProcessFunction, .*Call key_by\(...\) before process"):
            env.from_collection([1]).process(Count())

    def test_a_process_function_on_a_keyed_stream_is_refused(self, env):
        class Plain(ProcessFunction):
            def process_element(self, value, ctx):
                yield value

        with pytest.raises(GraphError, match="Plain is a ProcessFunction; a keyed stream needs a KeyedProcessFunction"):
            env.from_collection([1]).key_by(identity).process(Plain())

    def test_a_method_of_the_same_name_on_another_object_is_allowed(self, env):
        with JobHarness(env.from_collection([1]).map(UsesRegistry())) as job:
            assert job.run() == [(1, "mine", "too")]

    def test_state_requested_in_a_helper_is_refused_when_the_function_opens(self, env):
        stream = env.from_collection([1]).map(HidesItsState()).name("counter").uid("c")
        with (
            JobHarness(stream) as job,
            pytest.raises(UserFunctionFailed, match="requests state 'hidden', but its stream"),
        ):
            job.epoch()


class TestPlan:
    def test_the_plan_shows_a_rebalance(self, env):
        env.from_collection([1]).uid("s").map(identity).uid("m").set_parallelism(3)
        (edge,) = json.loads(env.get_execution_plan())["nodes"][1]["predecessors"]
        assert edge["ship_strategy"] == "REBALANCE"

    def test_a_program_without_a_source_is_refused(self, env):
        with pytest.raises(GraphError, match=r"no source.*Add a source, for example with env.from_collection"):
            env.get_execution_plan()


class HoldsLock(MapFunction):
    def __init__(self):
        self.name = "fine"
        self.lock = threading.Lock()

    def map(self, value):
        return value

    def method(self, value):
        return value


class LockedSink(Sink):
    def __init__(self):
        self.lock = threading.Lock()

    def create_writer(self, context):
        raise NotImplementedError

    def commit(self, commits, context):
        raise NotImplementedError


def refuse_to_pickle(self):
    raise RuntimeError("CONTEXT_ONLY_VALID_ON_DRIVER")


class TestUnpicklableFunctions:
    def test_an_unpicklable_attribute_is_named(self, env):
        env.from_collection([1]).map(HoldsLock()).name("m").uid("u")
        message = (
            r"'m' \(uid 'u'\): HoldsLock cannot .* attribute 'lock' of class HoldsLock, a _thread.lock.* in open\(\)"
        )
        with pytest.raises(NotShippable, match=message):
            physical(env)

    def test_a_captured_socket_is_named(self, env):
        with socket.socket() as connection:
            env.from_collection([1]).map(lambda value: connection.send(value))
            with pytest.raises(NotShippable, match=r"the captured variable 'connection', a socket.socket"):
                physical(env)

    def test_a_captured_generator_is_named(self, env):
        numbers = (n for n in range(3))

        def take(value):
            return next(numbers)

        env.from_collection([1]).map(take)
        with pytest.raises(NotShippable, match=r"take cannot .* the captured variable 'numbers', a generator"):
            physical(env)

    def test_a_variable_captured_by_a_method_of_a_local_class_is_named(self, env):
        lock = threading.Lock()

        class Guarded(MapFunction):
            def map(self, value):
                return [lock for _ in range(value)]

        env.from_collection([1]).map(Guarded())
        with pytest.raises(NotShippable, match=r"Guarded cannot .* the captured variable 'lock', a _thread.lock"):
            physical(env)

    def test_an_unpicklable_attribute_behind_a_bound_method_is_named(self, env):
        env.from_collection([1]).map(HoldsLock().method)
        with pytest.raises(NotShippable, match=r"HoldsLock.method cannot .* attribute 'lock' of class HoldsLock"):
            physical(env)

    def test_an_unpicklable_key_selector_is_named(self, env):
        lock = threading.Lock()
        env.from_collection([1]).key_by(lambda value: lock).process(Count()).name("count").uid("c")
        with pytest.raises(NotShippable, match=r"'key selector of count' \(uid 'c'\): .* captured variable 'lock'"):
            physical(env)

    def test_an_unpicklable_sink_is_named(self, env):
        env.from_collection([1]).sink_to(LockedSink())
        with pytest.raises(NotShippable, match=r"'LockedSink' .* attribute 'lock' of class LockedSink"):
            physical(env)

    def test_the_fix_for_a_plain_function_is_a_class_with_open(self, env):
        lock = threading.Lock()
        env.from_collection([1]).map(lambda value: lock)
        assert "Write a class instead, such as a MapFunction, that creates it in open(" in self.fix_of(env)

    def test_the_fix_for_a_sink_is_to_create_the_object_in_create_writer(self, env):
        env.from_collection([1]).sink_to(LockedSink())
        assert self.fix_of(env) == (
            "Create it in create_writer() instead of holding it: create_writer() runs in the task."
        )

    def test_the_fix_for_an_iterator_is_a_list(self, env):
        numbers = (n for n in range(3))
        env.from_collection([1]).map(lambda value: next(numbers))
        assert self.fix_of(env).startswith("Pass the function a list of the iterator's values")

    def test_an_environment_or_stream_is_refused(self, env):
        env._spark = type("SparkSession", (), {"__reduce__": refuse_to_pickle})()
        stream = env.from_collection([1])
        stream.map(lambda value: (value, stream))
        assert self.fix_of(env).startswith("Environments and streams exist only in the driver program")

    def test_an_unpicklable_default_of_a_parameter_is_named(self, env):
        lock = threading.Lock()
        env.from_collection([1]).map(lambda value, *, guard=lock: value)
        with pytest.raises(NotShippable, match=r"because of the default of parameter 'guard', a _thread.lock"):
            physical(env)

    @pytest.mark.parametrize(
        ("name", "collects", "advised"),
        [
            ("SparkSession", False, "A SparkSession exists only in the driver program, not in tasks."),
            ("DataFrame", True, "Collect the data that the function needs before the job starts, rows = df.collect()"),
        ],
    )
    def test_a_spark_object_is_refused(self, env, name, collects, advised):
        """The objects imitate those of PySpark, which cannot be pickled either."""
        methods = {"__module__": "pyspark.sql", "__reduce__": refuse_to_pickle}
        if collects:
            methods["collect"] = list
        held = type(name, (), methods)()
        env.from_collection([1]).map(lambda value: held)
        fix = self.fix_of(env)
        assert advised in fix
        assert "open()" not in fix

    def fix_of(self, env):
        with pytest.raises(NotShippable) as caught:
            physical(env)
        return caught.value.fix

    def test_an_unpicklable_global_of_the_script_is_named_without_importing_spark(self):
        script = textwrap.dedent(
            """
            import sys, threading
            from penstock.datastream import MapFunction, StreamExecutionEnvironment

            pool = threading.Lock()

            class Pooled(MapFunction):
                def map(self, value):
                    return [pool for _ in range(value)]

            def pooled(value):
                return pool

            for function in (Pooled(), pooled, lambda value: pool):
                env = StreamExecutionEnvironment.get_execution_environment()
                env.from_collection([1]).map(function).uid("m").print()
                try:
                    env.execute()
                except Exception as error:
                    print(error)
            print("pyspark" in sys.modules)
            """
        )
        *messages, imported = run_script(script).stdout.splitlines()
        assert imported == "False"
        assert len(messages) == 3
        for name, message in zip(("Pooled", "pooled", "<lambda>"), messages):
            assert f"(uid 'm'): {name} cannot be sent to the tasks" in message
            assert "the global variable 'pool', a _thread.lock" in message
            assert "open()" in message

    def test_other_refused_programs_do_not_import_spark(self):
        script = textwrap.dedent(
            """
            import sys
            from penstock.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
            from penstock.datastream.state import ValueStateDescriptor

            class Stateful(MapFunction):
                def open(self, runtime_context):
                    self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
                def map(self, value):
                    return value

            env = StreamExecutionEnvironment.get_execution_environment()
            env.from_collection([1]).map(Stateful()).print()
            try:
                env.execute()
            except Exception as error:
                print(type(error).__name__)
            print("pyspark" in sys.modules)
            """
        )
        assert run_script(script).stdout.split() == ["GraphError", "False"]


def run_script(script, **environment):
    """Run a program as its own __main__."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        timeout=60,
    )
