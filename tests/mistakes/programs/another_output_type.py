from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

env = StreamExecutionEnvironment.get_execution_environment()
lengths = (
    env.from_collection(["to", "be"])
    .map(lambda word: (word, str(len(word))), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .uid("lengths")
)

with JobHarness(lengths) as job:
    job.run()
