from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
orders = env.from_collection([("ann", 3), ("bob", 4)])
orders.key_by(lambda order: order[0]).as_queryable_state("last order").uid("last-order")
env.execute()
