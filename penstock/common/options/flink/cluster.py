"""Settings of Flink's processes, their memory, network, security and deployment."""

from __future__ import annotations

from penstock.common.options.flink.ruling import refused, without_effect

RULINGS = (
    refused(
        "Paths without a scheme are paths of the local file system, so data would come from and go to other places.",
        "fs.default-scheme",
        fix="Write the scheme in each path, such as hdfs://host:port/path.",
        harmless=("file", "file:", "file://", "file:///"),
    ),
    refused(
        "Functions would not find these environment variables.",
        "containerized.{master.env.<variable> taskmanager.env.<variable>}",
        fix="Set spark.executorEnv.NAME for the workers, and the variable itself where the driver starts.",
    ),
    refused(
        "Connections would not be encrypted, although this setting asks for it.",
        "security.ssl.{enabled internal.enabled rest.authentication-enabled rest.enabled}",
        fix=(
            "For the service set rest.ssl.certificate and rest.ssl.private-key, for Spark spark.ssl.enabled and "
            "spark.network.crypto.enabled."
        ),
        harmless=("false",),
    ),
    refused(
        "Rescaling cannot be switched off: every client of the service can rescale jobs.",
        "web.rescale.enable",
        fix="Remove the setting, and restrict who has the token of the service.",
        harmless=("true",),
    ),
    without_effect(
        "Flink's processes call each other through Pekko, formerly Akka; Penstock does not use it.",
        """
        akka.{* ask.callstack ask.timeout client.timeout framesize jvm-exit-on-fatal-error log.lifecycle.events
        lookup.timeout retry-gate-closed-for rpc.force-invocation-serialization ssl.enabled startup-timeout
        tcp.timeout throughput}
        akka.client-socket-worker-pool.{pool-size-factor pool-size-max pool-size-min}
        akka.fork-join-executor.{parallelism-factor parallelism-max parallelism-min}
        akka.server-socket-worker-pool.{pool-size-factor pool-size-max pool-size-min}
        akka.watch.{heartbeat.interval heartbeat.pause threshold}
        pekko.{* ask.callstack ask.timeout framesize jvm-exit-on-fatal-error log.lifecycle.events lookup.timeout
        retry-gate-closed-for rpc.force-invocation-serialization ssl.enabled startup-timeout tcp.timeout throughput}
        pekko.client-socket-worker-pool.{pool-size-factor pool-size-max pool-size-min}
        pekko.fork-join-executor.{parallelism-factor parallelism-max parallelism-min}
        pekko.remote-fork-join-executor.{parallelism-factor parallelism-max parallelism-min}
        pekko.server-socket-worker-pool.{pool-size-factor pool-size-max pool-size-min}
        """,
    ),
    without_effect(
        "Spark runs on Kubernetes with its own settings, `spark.kubernetes.*`.",
        """
        external-resource.<resource_name>.kubernetes.config-key
        high-availability.kubernetes.{leader-election.lease-duration leader-election.renew-deadline
        leader-election.retry-period}
        kubernetes.{* client.io-pool.size client.user-agent cluster-id config.file context
        decorator.hadoop-conf-mount.enabled decorator.kerberos-mount.enabled entry.path env.secretKeyRef
        flink.conf.dir flink.log.dir hadoop.conf.config-map.name hostnetwork.enabled internal-service.annotations
        internal-service.labels namespace node-name-label persistent-volume-claim-read-only persistent-volume-claims
        pod-template-file secrets service-account}
        kubernetes.artifacts.{local-upload-enabled local-upload-overwrite local-upload-target}
        kubernetes.container.{image image.pull-policy image.pull-secrets image.ref}
        kubernetes.jobmanager.{annotations cpu cpu.amount cpu.limit-factor entrypoint.args labels
        memory.limit-factor node-selector owner.reference replicas service-account tolerations}
        kubernetes.pod-template-file.{default jobmanager taskmanager}
        kubernetes.rest-service.{annotations exposed.node-port-address-type exposed.type labels}
        kubernetes.taskmanager.{annotations cpu cpu.amount cpu.limit-factor entrypoint.args labels
        memory.limit-factor node-selector service-account tolerations}
        kubernetes.transactional-operation.{initial-retry-delay max-retries max-retry-delay}
        """,
    ),
    without_effect(
        "Spark runs on YARN with its own settings, `spark.yarn.*`.",
        """
        external-resource.<resource_name>.yarn.config-key
        flink.yarn.<key>
        yarn.{* application-attempt-failures-validity-interval application-attempts application-master.port
        appmaster.vcores classpath.include-user-jar container-start-command-template containers.vcores
        file-replication flink-dist-jar heartbeat-delay heartbeat.container-request-interval heartbeat.interval
        modify.acls per-job-cluster.include-user-jar properties-file.location provided.lib.dirs provided.usrlib.dir
        rolled-logs.exclude-pattern rolled-logs.include-pattern security.appmaster.delegation.token.services
        ship-archives ship-directories ship-files staging-directory tags taskmanager.node-label view.acls}
        yarn.application.{id name node-label priority queue type}
        yarn.security.{kerberos.additionalFileSystems kerberos.localized-keytab-path kerberos.ship-local-keytab}
        """,
    ),
    without_effect(
        "Spark assigns external resources such as GPUs: `spark.executor.resource.*` and `spark.task.resource.*`.",
        """
        external-resources
        external-resource.{* <resource_name>.param.discovery-script.args
        <resource_name>.param.discovery-script.path}
        external-resource.<resource_name>.{amount driver-factory.class param.<param>}
        """,
    ),
    without_effect(
        "Spark has its own settings for Hadoop, `spark.hadoop.*`, and Kerberos, `spark.kerberos.keytab` and "
        "`.principal`.",
        """
        flink.{hadoop.* hadoop.<key>}
        security.{context.factory.classes delegation.token.provider.<service>.enabled delegation.tokens.enabled
        delegation.tokens.renewal.retry.backoff delegation.tokens.renewal.time-ratio
        kerberos.tokens.renewal.retry.backoff kerberos.tokens.renewal.time-ratio keytab module.factory.classes
        principal}
        security.kerberos.{access.hadoopFileSystems fetch.delegation-token krb5-conf.path login.contexts
        login.keytab login.principal login.use-ticket-cache relogin.period}
        """,
    ),
    without_effect(
        "Object stores for checkpoints take their options from `state.checkpoints.fs.*`, those of Spark's "
        "connectors from `spark.hadoop.*`.",
        """
        fs.{allowed-fallback-filesystems azure.* gs.* oss.* output.always-create-directory overwrite-files s3.*
        s3a.*}
        gs.*
        s3.*
        taskmanager.{runtime.fs-timeout runtime.fs_timeout}
        """,
    ),
    without_effect(
        "Details of TLS between Flink's processes; `rest.ssl.certificate` and `rest.ssl.private-key` switch on "
        "TLS of the service, `spark.ssl.*` that of Spark.",
        """
        blob.service.ssl.enabled
        historyserver.web.ssl.enabled
        jobmanager.web.ssl.enabled
        security.{ssl.internal.cert.fingerprint ssl.rest.cert.fingerprint}
        security.ssl.{algorithms close-notify-flush-timeout handshake-timeout internal.close-notify-flush-timeout
        internal.handshake-timeout internal.key-password internal.keystore internal.keystore-password
        internal.keystore-type internal.session-cache-size internal.session-timeout internal.truststore
        internal.truststore-password internal.truststore-type key-password keystore keystore-password protocol
        provider rest.key-password rest.keystore rest.keystore-password rest.keystore-type rest.truststore
        rest.truststore-password rest.truststore-type rest.verify-hostname session-cache-size session-timeout
        truststore truststore-password verify-hostname}
        taskmanager.data.ssl.enabled
        web.ssl.enabled
        """,
    ),
    without_effect(
        "The service keeps what recovery needs in `high-availability.storageDir` and ZooKeeper, under its own "
        "names, and reconnects by its own rules.",
        """
        cleanup-strategy
        application-result-store.{delete-on-commit storage-path}
        cleanup-strategy.{fixed-delay.attempts fixed-delay.delay type}
        cleanup-strategy.exponential-delay.{attempts initial-backoff max-backoff}
        high-availability.{job.delay jobmanager.port}
        high-availability.zookeeper.{client.acl client.authorization client.connection-timeout
        client.ensemble-tracker client.max-close-wait client.max-retry-attempts client.max-retry-wait
        client.retry-wait client.simulated-session-expiration-percent client.tolerate-suspended-connections
        path.applications path.execution-plans path.jobgraphs path.running-registry}
        job-event.{store.write-buffer.flush-interval store.write-buffer.size}
        job-result-store.{delete-on-commit storage-path}
        recovery.{job.delay jobmanager.port}
        recovery.zookeeper.{client.connection-timeout client.max-retry-attempts client.retry-wait path.jobgraphs}
        zookeeper.sasl.{disable login-context-name service-name}
        """,
    ),
    without_effect(
        "The service remembers ended jobs itself: `web.history` and `cluster.history.max-age`.",
        """
        completed-application-store.{cache-size expiration-time max-capacity type}
        historyserver.{log.jobmanager.url-pattern log.taskmanager.url-pattern}
        historyserver.archive.{clean-expired-applications clean-expired-jobs fs.dir fs.refresh-interval
        retained-applications retained-jobs retained-ttl}
        historyserver.web.{address port refresh-interval tmpdir}
        jobmanager.{archive.fs.dir execution.attempts-history-size}
        jobstore.{cache-size expiration-time max-capacity type}
        """,
    ),
    without_effect(
        "The REST interface of the service has no such part, or a fixed value for it.",
        """
        jobmanager.web.{access-control-allow-origin backpressure.cleanup-interval backpressure.delay-between-samples
        backpressure.num-samples backpressure.refresh-interval checkpoints.history log.path tmpdir upload.dir}
        rest.{await-leader-timeout bind-port client.max-content-length connection-timeout idleness-timeout path
        retry.delay retry.max-attempts server.numThreads server.thread-priority url-prefix}
        rest.cache.{checkpoint-statistics.size checkpoint-statistics.timeout execution-graph.timeout}
        rest.flamegraph.{cleanup-interval delay-between-samples enabled num-samples refresh-interval stack-depth}
        rest.profiling.{dir duration-max enabled history-size}
        web.{access-control-allow-origin adaptive-scheduler.rescale-history.size checkpoints.history
        exception-history-size log.path tmpdir upload.dir}
        web.backpressure.{cleanup-interval delay-between-samples num-samples refresh-interval}
        """,
    ),
    without_effect(
        "Files reach the workers through Spark.",
        """
        blob.{client.connect.timeout client.socket.timeout offload.minsize server.port service.cleanup.interval
        storage.directory}
        blob.fetch.{backlog num-concurrent retries}
        library-cache-manager.cleanup.interval
        """,
    ),
    without_effect(
        "Java classes of a job come from `spark.jars`, and Spark has its own class loaders: "
        "`spark.driver.userClassPathFirst`.",
        """
        classloader.{check-leaked-classloader fail-on-metaspace-oom-error parent-first-patterns
        parent-first-patterns.additional parent-first-patterns.default resolve-order}
        plugin.{classloader.parent-first-patterns.additional classloader.parent-first-patterns.default}
        """,
    ),
    without_effect(
        "Spark starts the JVMs: `spark.driver.extraJavaOptions`, `spark.executor.extraJavaOptions` and "
        "`spark.local.dir`.",
        """
        env.{hadoop.conf.dir hbase.conf.dir pid.dir ssh.opts stdout-err.redirect-to-file yarn.conf.dir}
        env.java.{default-opts.all default-opts.jobmanager default-opts.taskmanager home opts opts.all opts.client
        opts.historyserver opts.jobmanager opts.sql-gateway opts.taskmanager}
        env.log.{dir level max}
        io.tmp.dirs
        jmx.server.port
        local.{number-resourcemanager number-taskmanager}
        minicluster.number-of-taskmanagers
        process.{jobmanager.working-dir taskmanager.working-dir working-dir}
        taskmanager.tmp.dirs
        """,
    ),
    without_effect(
        "The driver is Spark's: `spark.driver.memory` sets its memory, and it needs no ports or schedulers of Flink's.",
        """
        scheduler-mode
        job-manager.max-attempts-history-size
        jobmanager.{bind-host execution.failover-strategy future-pool.size heap.mb io-pool.size resource-id
        retrieve-taskmanager-hostname scheduler
        task-deployment.offload-shuffle-descriptors-to-blob-server.threshold-num}
        jobmanager.adaptive-scheduler.{executing.cooldown-after-rescaling executing.resource-stabilization-timeout
        min-parallelism-increase prefer-minimal-taskmanagers rescale-trigger.max-checkpoint-failures
        rescale-trigger.max-delay resource-stabilization-timeout resource-wait-timeout scaling-interval.max
        scaling-interval.min submission.resource-stabilization-timeout submission.resource-wait-timeout}
        jobmanager.memory.{enable-jvm-direct-memory-limit flink.size jvm-metaspace.size jvm-overhead.fraction
        jvm-overhead.max jvm-overhead.min off-heap.size process.size}
        jobmanager.rpc.{address bind-port port}
        """,
    ),
    without_effect(
        "Tasks run in Spark's executors: `spark.executor.memory`, `spark.executor.cores` and `spark.cores.max` "
        "size them, and Spark replaces lost ones.",
        """
        cluster.{evenly-spread-out-slots intercept-user-system-exit io-pool.size processes.halt-on-fatal-error
        services.shutdown-timeout thread-dump.stacktrace-max-depth uncaught-exception-handling}
        cluster.registration.{error-delay initial-timeout max-timeout refused-registration-delay}
        containerized.{heap-cutoff-min heap-cutoff-ratio}
        heartbeat.{interval rpc-failure-threshold}
        resourcemanager.{job.timeout previous-worker.recovery.timeout rpc.port standalone.start-up-time
        start-worker.max-failure-rate start-worker.retry-interval taskmanager-registration.timeout
        taskmanager-release.wait.result.consumed taskmanager-timeout}
        slot.{idle.timeout request.max-interval}
        slotmanager.{declare-needed-resource.delay max-total-resource.cpu max-total-resource.memory
        min-total-resource.cpu min-total-resource.memory number-of-slots.max number-of-slots.min
        redundant-taskmanager-num requirement-check.delay taskmanager-timeout}
        taskmanager.{bind-host cpu.cores data.bind-port data.port exit-on-fatal-akka-error heap.mb heap.size host
        initial-registration-pause jvm-exit-on-oom load-balance.mode log.path max-registration-pause
        maxRegistrationDuration memory.task.heap.size memory.task.off-heap.size numberOfTaskSlots
        refused-registration-pause resource-id rpc.bind-port rpc.port slot.timeout system-out.log.cache-upper-size
        system-out.log.thread-name.enabled system-out.mode}
        taskmanager.debug.{memory.log memory.log-interval memory.logIntervalMs memory.startLogThread}
        taskmanager.memory.{flink.size jvm-metaspace.size jvm-overhead.fraction jvm-overhead.max jvm-overhead.min
        managed.consumer-weights managed.fraction managed.size network.fraction network.max network.min process.size
        size}
        taskmanager.memory.framework.{heap.size off-heap.batch-shuffle.size off-heap.size}
        taskmanager.registration.{initial-backoff max-backoff refused-backoff timeout}
        """,
    ),
    without_effect(
        "Records travel through Spark's shuffle: `taskmanager.memory.segment-size` sets the size of their "
        "buffers, and settings of Netty do not apply.",
        """
        taskmanager.{memory.min-segment-size memory.starting-segment-size network.batch-shuffle.compression.enabled
        network.blocking-shuffle.compression.enabled network.hybrid-shuffle.external-remote-tier-factory.class
        network.hybrid-shuffle.remote.path}
        taskmanager.net.{client.connectTimeoutSec client.numThreads num-arenas request-backoff.initial
        request-backoff.max sendReceiveBufferSize server.backlog server.numThreads transport}
        taskmanager.network.{adaptive-partitioner.enabled adaptive-partitioner.max-traverse-size bind-policy
        blocking-shuffle.type compression.codec detailed-metrics hybrid-shuffle.enable-new-mode
        hybrid-shuffle.num-retained-in-memory-regions-max hybrid-shuffle.spill-index-region-group-size
        hybrid-shuffle.spill-index-segment-size max-num-tcp-connections memory.buffers-per-channel
        memory.buffers-request-timeout memory.exclusive-buffers-request-timeout-ms memory.floating-buffers-per-gate
        memory.fraction memory.max memory.max-buffers-per-channel memory.max-overdraft-buffers-per-gate memory.min
        netty.num-arenas netty.sendReceiveBufferSize netty.transport numberOfBuffers partition-request-timeout
        request-backoff.initial request-backoff.max retries sort-shuffle.min-buffers sort-shuffle.min-parallelism
        tcp-connection.enable-reuse-across-jobs}
        taskmanager.network.memory.{buffer-debloat.enabled buffer-debloat.period buffer-debloat.samples
        buffer-debloat.target buffer-debloat.threshold-percentages read-buffer.required-per-gate.max}
        taskmanager.network.netty.{client.connectTimeoutSec client.numThreads client.tcp.keepCount
        client.tcp.keepIdleSec client.tcp.keepIntervalSec server.backlog server.numThreads}
        """,
    ),
    without_effect(
        "Spark ends the tasks of a cancelled job.",
        """
        task.cancellation-interval
        task.cancellation.{interval timeout timers.timeout}
        timerservice.exceptional.shutdown.timeout
        """,
    ),
)
