from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([{"user": "ann", "page": "/"}])
last = clicks.key_by(lambda click: {"user": click["user"]}).reduce(lambda first, second: second).uid("last")

with JobHarness(last) as job:
    job.run()
