"""The program of the real jobs: counts numbers by key, a hundred per second, until it is cancelled."""

from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_sequence(0, 10**9).uid("numbers")
counts = numbers.map(lambda n: (n % 10, 1)).uid("pairs").key_by(lambda pair: pair[0])
counts.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts").sink_to(DiscardingSink()).uid("out")
env.execute("counts")
