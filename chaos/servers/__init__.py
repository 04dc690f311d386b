"""Real local servers from wheels, for the crash rig and the tests, that can be killed and restarted."""
