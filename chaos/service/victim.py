"""The program that the rig submits: the victim of the other rig, with its folder and pace as arguments."""

import json
import sys

from chaos.ends.programs import build
from penstock.datastream import StreamExecutionEnvironment

ends, per_epoch, pace_ms = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
build(env, ends, per_epoch, pace_ms)
env.execute("victim")
