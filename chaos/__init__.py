"""The crash rig: run a real job in real processes, kill and damage it repeatedly, and compare it with an oracle."""
