"""Where the benchmarks run: two cores in one process, or two executors with one core each."""

PARALLELISM = 2
MASTER = f"local[{PARALLELISM}]"
CLUSTER = f"local-cluster[{PARALLELISM},1,1024]"
