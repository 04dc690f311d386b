from penstock.common import Time
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness

env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([("ann", 1), ("bob", 1)]).key_by(lambda click: click[0])
counts = clicks.window(TumblingEventTimeWindows.of(Time.seconds(10))).sum(1).uid("counts")

with JobHarness(counts) as job:
    job.run()
