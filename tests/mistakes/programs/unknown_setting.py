from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

config = Configuration()
config.set_string("state.checkpoint.directory", "file:///var/checkpoints")
env = StreamExecutionEnvironment.get_execution_environment(config)
