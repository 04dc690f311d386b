from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


def first_word(line):
    return line.split()[0]


env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to be", "or not"]).flat_map(first_word).uid("words")

with JobHarness(words) as job:
    job.run()
