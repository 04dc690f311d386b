from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([("ann", "home")])
buys = env.from_collection([("ann", "shoes")])


def user(record):
    return record[0]


both = clicks.join(buys).where(user).equal_to(user).apply(lambda click, buy: (click, buy))
