from penstock.datastream import StreamExecutionEnvironment


async def fetch(url):
    return url.upper()


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["a", "b"]).map(fetch).print()
env.execute()
