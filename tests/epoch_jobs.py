"""A program, a sink and a clock for driver tests that run no tasks."""

from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.builder import build

GROUPS = 16
STATES = {"n": "value long"}


def program(uid="count", groups=GROUPS):
    """Build numbers → count → out, in two chains."""
    env = StreamExecutionEnvironment.get_execution_environment()
    counted = env.from_collection([]).uid("numbers").key_by(lambda n: n).process(lambda n, ctx: [n])
    counted.name("count them").uid(uid).print().uid("out")
    return build(env._graph, parallelism=1, max_parallelism=groups)


class CommitLog:
    """The driver's side of a sink."""

    def __init__(self, durable=True):
        self.durable = durable
        self.concurrent_commit = self.commit_before_checkpoint = False
        self.committed = []
        self.aborted = []
        self.cleaned_up = []

    def commit(self, commits, context):
        self.committed += [(commit.subtask, commit.payload) for commit in commits]

    def abort(self, commits, context):
        self.aborted += [(commit.epoch, commit.subtask, commit.payload) for commit in commits]

    def abort_uncommitted(self, epoch, token, context):
        pass

    def clean_up(self, lineage, epoch, states, context):
        self.cleaned_up.append(epoch)

    def finish(self, lineage, states, context):
        raise AssertionError("the job was not cancelled")


class Clock:
    """A clock in seconds that the test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
