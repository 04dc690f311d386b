"""The soak test: run a job for many short epochs and check that heap, metaspace, processes and disk use do not grow."""
