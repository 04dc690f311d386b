from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


def ratio(sale):
    name, price, pieces = sale
    return name, each(price, pieces)


def each(price, pieces):
    return price / pieces


env = StreamExecutionEnvironment.get_execution_environment()
sales = env.from_collection([("tea", 6, 2), ("milk", 5, 0)])
prices = sales.map(ratio).name("price").uid("price")

with JobHarness(prices) as job:
    job.run()
