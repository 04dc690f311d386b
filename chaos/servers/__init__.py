"""Real servers on this machine, from wheels, for the crash rig and the tests: they can be killed and started again."""
