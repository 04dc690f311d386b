"""Settings of the Table API."""

from __future__ import annotations

from penstock.common.options.flink.ruling import without_effect

RULINGS = (
    without_effect(
        "The Table API does not exist here; Spark SQL has its own settings, `spark.sql.*`.",
        """
        materialized-table.{default-freshness.continuous default-freshness.full default-start-mode
        refresh-mode.freshness-threshold}
        sql-client.{* execution.max-table-result.rows execution.result-mode verbose}
        sql-client.display.{color-schema max-column-width print-time-cost show-line-numbers}
        sql-gateway.*
        sql-gateway.session.{check-interval idle-timeout max-num plan-cache.enabled plan-cache.size plan-cache.ttl}
        sql-gateway.worker.{keepalive-time threads.max threads.min}
        table.{* builtin-catalog-name builtin-database-name catalog-modification.listeners catalog-store.kind
        column-expansion-strategy display.max-column-width dml-sync dynamic-table-options.enabled
        exec.delta-join.left.cache-size exec.delta-join.right.cache-size generated-code.max-length
        generated-code.max-members legacy-nested-row-nullability local-time-zone
        optimizer.distinct-agg.split.bucket-num optimizer.distinct-agg.split.enabled
        optimizer.sql-to-rel.project.merge.enabled optimizer.sql2rel.project-merge.enabled resources.download-dir
        rtas-ctas.atomicity-enabled secret-store.kind sql-dialect}
        table.exec.{async-lookup.buffer-capacity async-lookup.key-ordered-enabled async-lookup.output-mode
        async-lookup.timeout async-ml-predict.max-concurrent-operations async-ml-predict.output-mode
        async-ml-predict.timeout async-scalar.buffer-capacity async-scalar.max-attempts
        async-scalar.max-concurrent-operations async-scalar.retry-delay async-scalar.retry-strategy
        async-scalar.timeout async-state.enabled async-table.max-concurrent-operations async-table.max-retries
        async-table.retry-delay async-table.retry-strategy async-table.timeout
        async-vector-search.max-concurrent-operations async-vector-search.output-mode async-vector-search.timeout
        deduplicate.insert-update-after-sensitive-enabled delta-join.cache-enabled disabled-operators
        interval-join.min-cleanup-interval legacy-cast-behaviour legacy-transformation-uids mini-batch.allow-latency
        mini-batch.enabled mini-batch.size operator-fusion-codegen.enabled rank.topn-cache-size
        resource.default-parallelism resource.external-buffer-memory simplify-operator-name-enabled
        sink.keyed-shuffle sink.nested-constraint-enforcer sink.not-null-enforcer sink.require-on-conflict
        sink.rowtime-inserter sink.type-length-enforcer sink.upsert-materialize sort.async-merge-enabled
        sort.default-limit sort.max-num-file-handles source.cdc-events-duplicate source.idle-timeout
        spill-compression.block-size spill-compression.enabled state.ttl topn-cache-size uid.format uid.generation
        unbounded-over.version window-agg.buffer-size-limit}
        table.exec.deduplicate.{insert-and-updateafter-sensitive.enabled mini-batch.compact-changes-enabled
        mini-batch.compact-changes.enabled}
        table.exec.local-hash-agg.{adaptive.distinct-value-rate-threshold adaptive.enabled
        adaptive.sampling-threshold}
        table.exec.resource.{hash-agg.memory hash-join.memory sort.memory}
        table.exec.sink.{upsert-materialize-strategy.adaptive.threshold.high
        upsert-materialize-strategy.adaptive.threshold.low upsert-materialize-strategy.type}
        table.optimizer.{adaptive-broadcast-join.strategy agg-phase-strategy bushy-join-reorder-threshold
        delta-join.strategy dynamic-filtering.enabled incremental-agg-enabled join-reorder-enabled
        join.broadcast-threshold multi-join.enabled multiple-input-enabled non-deterministic-update.strategy
        ptf.max-tables reuse-optimize-block-with-digest-enabled reuse-sink-enabled reuse-source-enabled
        reuse-sub-plan-enabled runtime-filter.enabled runtime-filter.max-build-data-size
        runtime-filter.min-filter-ratio runtime-filter.min-probe-data-size skewed-join-optimization.skewed-factor
        skewed-join-optimization.skewed-threshold skewed-join-optimization.strategy
        source.aggregate-pushdown-enabled source.predicate-pushdown-enabled source.report-statistics-enabled
        union-all-as-breakpoint-enabled}
        table.plan.{compile.catalog-objects force-recompile restore.catalog-objects}
        workflow-scheduler.type
        """,
    ),
)
