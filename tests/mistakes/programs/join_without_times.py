from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


def pair(order, shipment, ctx):
    yield order, shipment


env = StreamExecutionEnvironment.get_execution_environment()
orders = env.from_collection([("o-1", "lamp")]).key_by(lambda order: order[0])
shipments = env.from_collection([("o-1", "truck 7")]).key_by(lambda shipment: shipment[0])
shipped = orders.interval_join(shipments).between(0, 3_600_000).process(pair).uid("shipped")

with JobHarness(shipped) as job:
    job.run()
