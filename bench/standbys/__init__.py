"""The first epoch after the loss of an executor, with and without standby replicas."""
