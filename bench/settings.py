"""The Spark settings of a run: Penstock's own, given to the peer as well."""

PARALLELISM = 2
MASTER = f"local[{PARALLELISM}]"
SCHEMA = "key string, value long"


def penstock_conf() -> dict[str, str]:
    try:
        from penstock.spark.session import default_conf
    except ImportError:
        return {
            "spark.ui.enabled": "false",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing"
                ".FileSystemBasedCheckpointFileManager"
            ),
            "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.codegen.wholeStage": "false",
        }
    return default_conf()


def both_ways_conf() -> dict[str, str]:
    """What Penstock and the peer both run with."""
    return {
        **penstock_conf(),
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        # A file of a few MB counts as one partition by default, which leaves one core idle in
        # the source stage. Without the open cost Spark cuts it in two, as a topic would be.
        "spark.sql.files.openCostInBytes": "0",
    }
