"""Settings of state backends."""

from __future__ import annotations

from penstock.common.options.flink.ruling import without_effect

_METRICS_OF_ROCKSDB = """
    metrics.actual-delayed-write-rate metrics.background-errors
    metrics.block-cache-capacity metrics.block-cache-hit metrics.block-cache-miss
    metrics.block-cache-pinned-usage metrics.block-cache-usage metrics.bloom-filter-full-positive
    metrics.bloom-filter-full-true-positive metrics.bloom-filter-useful metrics.bytes-read metrics.bytes-written
    metrics.column-family-as-variable metrics.compaction-pending metrics.compaction-read-bytes
    metrics.compaction-write-bytes metrics.cur-size-active-mem-table metrics.cur-size-all-mem-tables
    metrics.estimate-live-data-size metrics.estimate-num-keys metrics.estimate-pending-compaction-bytes
    metrics.estimate-table-readers-mem metrics.is-write-stopped metrics.iter-bytes-read
    metrics.live-sst-files-size metrics.mem-table-flush-pending metrics.num-deletes-active-mem-table
    metrics.num-deletes-imm-mem-tables metrics.num-entries-active-mem-table metrics.num-entries-imm-mem-tables
    metrics.num-files-at-level metrics.num-immutable-mem-table metrics.num-live-versions
    metrics.num-running-compactions metrics.num-running-flushes metrics.num-snapshots
    metrics.size-all-mem-tables metrics.stall-micros metrics.total-sst-files-size
"""
"""ForSt, which began as a copy of RocksDB, has the same ones."""

RULINGS = (
    without_effect(
        "Every backend stores changes incrementally, so none needs a changelog.",
        """
        dstl.dfs.download.local-cache.idle-timeout-ms
        dstl.dfs.{base-path batch.persist-delay batch.persist-size-threshold compression.enabled discard.num-threads
        preemptive-persist-threshold upload.buffer-size upload.max-attempts upload.max-in-flight
        upload.next-attempt-delay upload.num-threads upload.retry-policy upload.timeout}
        state.{backend.changelog.periodic-materialize.enabled backend.changelog.periodic-materialize.interval}
        state.backend.{changelog.enabled changelog.max-failures-allowed changelog.storage}
        state.changelog.{enabled max-failures-allowed periodic-materialize.enabled periodic-materialize.interval
        storage}
        state.changelog.dstl.{dfs.base-path dfs.batch.persist-delay dfs.batch.persist-size-threshold
        dfs.compression.enabled dfs.discard.num-threads dfs.download.local-cache.idle-timeout-ms
        dfs.preemptive-persist-threshold dfs.upload.buffer-size dfs.upload.max-attempts dfs.upload.max-in-flight
        dfs.upload.next-attempt-delay dfs.upload.num-threads dfs.upload.retry-policy dfs.upload.timeout}
        """,
    ),
    without_effect(
        "Penstock sizes and tunes RocksDB itself: set `state.backend.rocksdb.memory.cache`, "
        "`.memory.write-buffers` and `.thread.num`.",
        """
        state.backend.rocksdb.{block.blocksize block.cache-size block.metadata-blocksize bloom-filter.bits-per-key
        bloom-filter.block-based-mode compaction.filter.periodic-compaction-time
        compaction.filter.query-time-after-num-entries compaction.level.max-size-level-base
        compaction.level.target-file-size-base compaction.level.use-dynamic-size compaction.style
        compression.per.level files.open incremental-restore-async-compact-after-rescale log.dir log.file-num
        log.level log.max-file-size manual-compaction.max-auto-compactions
        manual-compaction.max-file-size-to-compact manual-compaction.max-files-to-compact
        manual-compaction.max-output-file-size manual-compaction.max-parallel-compactions
        manual-compaction.min-files-to-compact manual-compaction.min-interval memory.fixed-per-slot
        memory.fixed-per-tm memory.high-prio-pool-ratio memory.managed memory.partitioned-index-filters
        memory.write-buffer-ratio options-factory predefined-options rescaling.use-delete-files-in-range
        restore-overlap-fraction-threshold timer-service.cache-size use-bloom-filter use-ingest-db-restore-mode
        write-batch-size writebuffer.count writebuffer.number-to-merge writebuffer.size}
        """,
    ),
    without_effect(
        "ForSt does not exist here: `state.backend: forst` selects RocksDB with local files and checkpoints in "
        "`state.checkpoints.dir`.",
        """
        state.backend.forst.{block.blocksize block.cache-size block.metadata-blocksize bloom-filter.bits-per-key
        bloom-filter.block-based-mode cache.dir cache.lru.access-before-promote cache.lru.promote-limit
        cache.reserve-size cache.size-based-limit compaction.filter.periodic-compaction-time
        compaction.filter.query-time-after-num-entries compaction.level.max-size-level-base
        compaction.level.target-file-size-base compaction.level.use-dynamic-size compaction.style
        compression.per.level executor.inline-coordinator executor.inline-write executor.read-io-parallelism
        executor.write-io-parallelism files.open log.dir log.file-num log.level log.max-file-size
        memory.fixed-per-slot memory.fixed-per-tm memory.high-prio-pool-ratio memory.managed
        memory.partitioned-index-filters memory.write-buffer-ratio options-factory primary-dir
        rescaling.use-delete-files-in-range restore-overlap-fraction-threshold sync.enforce-local thread.num
        timer-service.cache-size timer-service.factory use-bloom-filter use-ingest-db-restore-mode write-batch-size
        writebuffer.count writebuffer.number-to-merge writebuffer.size}
        """,
    ),
    without_effect(
        "Penstock reports its own metrics of state.",
        """
        state.backend.{latency-track.history-size latency-track.keyed-state-enabled latency-track.sample-interval
        latency-track.state-name-as-variable}
        state.backend.forst.{@}
        state.backend.rocksdb.{@}
        state.latency-track.{history-size keyed-state-enabled sample-interval state-name-as-variable}
        state.size-track.{history-size keyed-state-enabled sample-interval state-name-as-variable}
        """.replace("@", _METRICS_OF_ROCKSDB),
    ),
    without_effect(
        "The threads that serve connections belong to Arrow Flight.",
        """
        query.{client.network-threads proxy.network-threads server.network-threads}
        queryable-state.{client.network-threads proxy.network-threads server.network-threads}
        """,
    ),
)
