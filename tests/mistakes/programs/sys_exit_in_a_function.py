import sys

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


def stop_at_the_end(word):
    if word == "end":
        sys.exit()
    return word


env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["tea", "end"]).map(stop_at_the_end).uid("stop")

with JobHarness(words) as job:
    job.run()
