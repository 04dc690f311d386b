"""Where the benchmarks run: two cores in one process, or executors with one core each."""

PARALLELISM = 2
MASTER = f"local[{PARALLELISM}]"
CLUSTER = f"local-cluster[{PARALLELISM},1,1024]"

EXECUTORS = 3
LARGER_CLUSTER = f"local-cluster[{EXECUTORS},1,1024]"
