"""Settings of metrics, events and traces."""

from __future__ import annotations

from penstock.common.options.flink.ruling import without_effect

RULINGS = (
    without_effect(
        "Penstock reports its metrics to Prometheus, through the REST interface and to `env.add_epoch_listener`.",
        """
        events.{* reporter.<name>.<parameter> reporters}
        events.reporter.<name>.{factory.class filter.excludes filter.includes scope.delimiter
        scope.variables.additional scope.variables.excludes}
        metrics.{* fetcher.update-interval internal.query-service.port internal.query-service.thread-priority
        job.status.enable system-resource system-resource-probing-interval}
        metrics.latency.{granularity history-size interval}
        metrics.reporter.<name>.{<parameter> allowList batch.size class connectTimeout consistency db
        deleteOnShutdown export-completion-timeout-millis exporter.compression exporter.endpoint exporter.protocol
        exporter.timeout factory.class filter.excludes filter.includes filterLabelValueCharacters groupingKey host
        hostUrl interval jobName password port randomJobNameSuffix retentionPolicy scheme scope.delimiter
        scope.variables.additional scope.variables.excludes service.name service.version username writeTimeout}
        metrics.scope.{delimiter jm jm-job jm-operator jm.job operator task tm tm-job tm.job}
        traces.{* checkpoint.span-detail-level report-events-as-spans reporter.<name>.<parameter> reporters}
        traces.reporter.<name>.{factory.class filter.excludes filter.includes scope.delimiter
        scope.variables.additional scope.variables.excludes}
        """,
    ),
)
