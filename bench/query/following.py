"""The CPU time of following a job, in proportion to that of the job's own replay of the same deltas.

`python -m bench.query.following KEYS CHANGES CHECKPOINTS BACKEND` prints a JSON object with both, in seconds.
"""

import gc
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.query.job import change, harness, load
from penstock.checkpoint.manifest import latest
from penstock.checkpoint.manifest_chain import ManifestChain, forget_manifests
from penstock.common.options.query import RETAINED_FOR_QUERIES, SERVER_BACKEND
from penstock.common.options.state import LOCAL_DIRECTORIES
from penstock.query.follower import Follower
from penstock.query.local_replicas import LocalReplicas
from penstock.state.backends import Backend, ReplicaStore
from penstock.state.replica import Replicas


def main(keys: int, changes: int, checkpoints: int, of_server: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        job = harness(str(Path(directory) / "job"), keys)
        load(job, keys)
        settings = {SERVER_BACKEND.key: of_server, LOCAL_DIRECTORIES.key: str(Path(directory) / "server")}
        replicas_of_server = LocalReplicas(settings)
        follower = Follower(job.storage, clock=lambda: 0.0, make_replica=replicas_of_server.replica)
        follower.poll()
        backend = Backend(name="filesystem", directories=[str(Path(directory) / "replicas")])
        opener = ReplicaStore(backend).opener("bench")
        rng = random.Random(1)
        replayed = followed = 0.0
        gc.collect()
        gc.freeze()
        # As in workers and state servers.
        gc.set_threshold(500_000, 20, 20)
        # Until the follower retains as many checkpoints as it can, none of them leaves.
        for number in range(-RETAINED_FOR_QUERIES.default, checkpoints):
            change(job, keys, changes, rng)
            found = latest(job.storage)
            assert found is not None
            manifest, version = found
            forget_manifests()
            started = time.process_time()
            replicas = Replicas("sums", manifest.blocks["sums"], ManifestChain(job.storage, version), opener)
            for block in manifest.blocks["sums"].numbers:
                replicas.reader(manifest.blocks["sums"].groups(block).start)
            replicas.close()
            once = time.process_time() - started
            forget_manifests()
            started = time.process_time()
            follower.poll()
            assert follower.newest == version.id
            if number >= 0:
                replayed += once
                followed += time.process_time() - started
        job.close()
        replicas_of_server.close()
    print(json.dumps({"replayed": replayed, "followed": followed, "rebuilt": follower.rebuilt}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
