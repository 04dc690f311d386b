from penstock.common import Time
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import SlidingEventTimeWindows

env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([("ann", 1), ("bob", 1)]).key_by(lambda click: click[0])
counts = clicks.window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(0))).sum(1)
