from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.testing import JobHarness

env = StreamExecutionEnvironment.get_execution_environment()
source = FileSource.for_record_stream_format(StreamFormat.json_lines(), "../inputs/orders.jsonl").build()
orders = env.from_source(source, source_name="orders", dead_letters=OutputTag("broken")).uid("orders")

with JobHarness(orders.map(lambda order: order["price"])) as job:
    job.run()
