"""Settings of a job: checkpoints, types, Python, sources and sinks, batch."""

from __future__ import annotations

from penstock.common.options.flink.ruling import refused, without_effect

RULINGS = (
    refused(
        "The workers would not find these modules, or would import others.",
        "python.pythonpath",
        fix="Set python.files, which ships modules and packages to all workers.",
    ),
    refused(
        "Records have no ingestion time here: windows of event time would be empty.",
        "pipeline.time-characteristic",
        fix="Assign timestamps: ds.assign_timestamps_and_watermarks(WatermarkStrategy...).",
        harmless=("EventTime", "ProcessingTime"),
    ),
    without_effect(
        "A buffer is sent when it is full and when its epoch ends, so the checkpoint interval bounds how long a "
        "record waits.",
        "execution.{buffer-timeout buffer-timeout.enabled buffer-timeout.interval}",
    ),
    without_effect(
        "A barrier closes the input of an epoch, so checkpoints are aligned and never wait behind buffered records.",
        """
        execution.{checkpointing.unaligned.interruptible-timers.enabled
        checkpointing.unaligned.recover-output-on-downstream.enabled
        state-recovery.without-channel-state.checkpoint-id}
        execution.checkpointing.{aligned-checkpoint-timeout alignment-timeout during-recovery.enabled force
        recover-without-channel-state.checkpoint-id unaligned unaligned.enabled unaligned.forced
        unaligned.max-subtasks-per-channel-state-file}
        """,
    ),
    without_effect(
        "Sources are read epoch by epoch, so none gets ahead by more than one epoch.",
        """
        pipeline.watermark-alignment.{allow-unaligned-source-splits buffer-size}
        """,
    ),
    without_effect(
        "Every checkpoint stores only what changed since the last one, in files that it writes, merges and "
        "removes by its own rules.",
        """
        execution.checkpointing.{cleaner.parallel-mode create-subdir data-inline-threshold
        file-merging.across-checkpoint-boundary file-merging.enabled file-merging.max-file-size
        file-merging.max-space-amplification file-merging.max-subtasks-per-file file-merging.pool-blocking
        incremental snapshot-compression write-buffer-size}
        state.{checkpoint.cleaner.parallel-mode checkpoints.create-subdir storage.fs.memory-threshold
        storage.fs.write-buffer-size}
        state.backend.{fs.memory-threshold fs.write-buffer-size incremental}
        """,
    ),
    without_effect(
        "Workers keep local replicas of their state in `state.backend.local-dir`, and recovery uses them if they "
        "are current; it is always exact.",
        """
        execution.{state-recovery.approximate-local-recovery state-recovery.from-local}
        execution.checkpointing.{approximate-local-recovery local-backup.dirs local-backup.enabled}
        state.backend.local-recovery
        taskmanager.state.local.root-dirs
        """,
    ),
    without_effect(
        "A checkpoint ends an epoch, whether or not tasks have finished or read a backlog.",
        """
        execution.checkpointing.{checkpoints-after-tasks-finish checkpoints-after-tasks-finish.enabled
        interval-during-backlog}
        pipeline.sources.pause-until-first-checkpoint
        """,
    ),
    without_effect(
        "Records are Python objects: Java's serializers, types and copies of objects do not apply.",
        """
        pipeline.{auto-type-registration closure-cleaner-level default-kryo-serializers force-avro force-kryo
        force-kryo-avro generic-types object-reuse registered-kryo-types registered-pojo-types serialization-config}
        """,
    ),
    without_effect(
        "Connectors of Penstock need no jars; `spark.jars` and `spark.jars.packages` load those of Spark's connectors.",
        "pipeline.{classpaths jars}",
    ),
    without_effect(
        "The plan names operators as the program does, and a max parallelism never splits a chain; "
        "`set_parallelism` sets that of an operator.",
        """
        pipeline.{jobvertex-parallelism-overrides operator-chaining.chain-operators-with-different-max-parallelism
        vertex-description-mode vertex-name-include-index-prefix}
        """,
    ),
    without_effect(
        "Penstock has no library for complex event processing.",
        "pipeline.cep.sharedbuffer.{cache.entry-slots cache.event-slots cache.statistics-interval}",
    ),
    without_effect(
        "State is local to the task that uses it, so accesses need no buffers.",
        """
        execution.async-state.{active-buffer-size active-buffer-timeout buffer-size buffer-timeout
        in-flight-records-limit total-buffer-size}
        """,
    ),
    without_effect(
        "A batch job is one Spark job: Spark sorts, shuffles, schedules, speculates and recovers by the settings "
        "`spark.*`.",
        """
        compiler.delimited-informat.{max-line-samples max-sample-len min-line-samples}
        execution.{batch-shuffle-mode batch-state-backend.enabled
        batch.job-recovery.previous-worker.recovery.timeout batch.job-recovery.snapshot.min-pause
        sort-keyed-partition.memory sort-partition.memory sorted-inputs.enabled sorted-inputs.memory}
        execution.batch.{job-recovery.enabled speculative.block-slow-node-duration speculative.enabled
        speculative.max-concurrent-executions}
        execution.batch.adaptive.{auto-parallelism.avg-data-volume-per-task
        auto-parallelism.default-source-parallelism auto-parallelism.enabled auto-parallelism.max-parallelism
        auto-parallelism.min-parallelism stream-graph-optimization.strategies}
        fine-grained.shuffle-mode.all-blocking
        hidden.{execution.mode execution.retries}
        jobmanager.{partition.hybrid.partition-data-consume-constraint partition.release-during-job-execution}
        jobmanager.adaptive-batch-scheduler.{avg-data-volume-per-task default-source-parallelism max-parallelism
        min-parallelism speculative.block-slow-node-duration speculative.enabled
        speculative.max-concurrent-executions}
        shuffle-service-factory.class
        slow-task-detector.check-interval
        slow-task-detector.execution-time.{baseline-lower-bound baseline-multiplier baseline-ratio}
        table.exec.shuffle-mode
        taskmanager.runtime.{hashjoin-bloom-filters large-record-handler max-fan sort-spilling-threshold}
        """,
    ),
    without_effect(
        "`spark.master` decides where a job runs, and `penstock run` decides how it is started.",
        """
        client.{heartbeat.interval heartbeat.timeout retry-period timeout}
        cluster.id
        execution.{allow-client-job-configurations attached program-config.enabled program-config.wildcards
        shutdown-on-application-finish shutdown-on-attached-exit submit-failed-job-on-application-error target
        terminate-application-on-any-job-terminated-exceptionally}
        user.artifacts.{artifact-list base-dir http-headers raw-http-enabled}
        """,
    ),
    without_effect(
        "Classes of Java are not called; `env.register_job_listener` and `env.add_epoch_listener` call functions.",
        """
        execution.{job-listeners job-status-changed-listeners}
        jobmanager.failure-enrichers
        """,
    ),
    without_effect(
        "Functions run in Spark's Python workers, on the records of one epoch: they have no separate bundles, "
        "caches, processes or loggers.",
        """
        python.{execution-mode fn-execution.arrow.batch.size logging.default.level logging.level.overrides
        loopback-server.address metric.enabled operator-chaining.enabled profile.enabled state.cache-size
        systemenv.enabled}
        python.fn-execution.{bundle.size bundle.time memory.managed}
        python.map-state.{iterate-response-batch-size read-cache-size write-cache-size}
        """,
    ),
    without_effect(
        "The interpreter that runs the program runs its driver; the rest are values that PyFlink passes to itself.",
        """
        python.{client.executable job-options}
        python.internal.{archives-key-map files-key-map requirements-file-key}
        """,
    ),
    without_effect(
        "Sources and sinks of Penstock have their own buffers, retries and timeouts.",
        """
        collect-sink.{batch-size.max socket-timeout}
        sink.committer.retries
        source.{file.records.fetch-size file.stream.io-fetch-size reader.close.timeout
        reader.element.queue.capacity}
        taskmanager.collect-sink.port
        """,
    ),
)
