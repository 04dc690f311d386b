import threading

from penstock.datastream import StreamExecutionEnvironment

lock = threading.Lock()


def guarded(value):
    with lock:
        return value + 1


env = StreamExecutionEnvironment.get_execution_environment()
(env.from_collection([1, 2, 3]).filter(lambda value: value > 1).map(guarded).uid("guard").print())
env.execute()
