from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.epoch_settings import Settings
from penstock.state.object_storage import ObjectStorage
from penstock.testing import JobHarness

storage = ObjectStorage("memory://checkpoints/sums")
settings = Settings(backend="filesystem", inline_bytes=0)


def sums():
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1, 2, 3]).uid("numbers").key_by(lambda n: n % 2)
    return numbers.reduce(lambda a, b: a + b).name("sums").uid("sums")


JobHarness(sums(), storage=storage, settings=settings).epoch()
(delta,) = storage.list("deltas/")
storage.delete(delta)
JobHarness(sums(), storage=storage, settings=settings).push(4).epoch()
