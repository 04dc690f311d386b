from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

env = StreamExecutionEnvironment.get_execution_environment()
counts = env.from_collection([1, 2, 3]).map(str).uid("text")

with JobHarness(counts) as job:
    job.run()
    job.savepoint("/dev/null/savepoints")
