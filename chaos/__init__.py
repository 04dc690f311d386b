"""The crash rig: a real job in real processes, killed and damaged again and again, then compared with an oracle."""
