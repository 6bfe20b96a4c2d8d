package cpreplicate;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.util.ExceptionUtils;

/** One job on its own MiniCluster: restore, prove that the state is exact, take checkpoints, stop. */
final class Run {
    // Only a hang takes so long: less than the tests wait, so that the message is of what hangs.
    private static final long PATIENCE_SECONDS = 1000;

    private final Options options;
    private final BlockingQueue<String> commands;
    private final int parallelism;
    private final Workload workload;
    private final Ledger ledger;
    private MiniCluster cluster;
    private JobID job;
    private CompletableFuture<JobResult> result;

    Run(Options options, BlockingQueue<String> commands) {
        this.options = options;
        this.commands = commands;
        this.parallelism = options.number("parallelism", 2);
        boolean unaligned = options.flag("unaligned");
        this.workload = new Workload(
                UUID.randomUUID().toString(),
                options.number("keys", unaligned ? 200 : 1000),
                options.number("padding", 100),
                options.number("slow-micros", unaligned ? 1000 : 0),
                unaligned);
        this.ledger = new Ledger(workload, parallelism);
    }

    /** True if nothing was found wrong. */
    boolean execute() {
        Configuration configuration = configuration();
        try (MiniCluster started = new MiniCluster(clusterConfiguration(configuration))) {
            cluster = started;
            cluster.start();
            submit(configuration);
            if (options.get("restore") != null) {
                proveRestored();
            }
            awaitFirstRecords();
            await("every task to run", this::everyoneRuns);
            Json.event("running");
            checkpoints(options.number("checkpoint-count", 0));
            if (options.get("until-gone") != null) {
                checkpointsUntilGone(Path.of(options.get("until-gone")));
            }
            if (options.get("savepoint") != null) {
                savepoint(options.get("savepoint"), options.get("savepoint-format", "NATIVE"));
            }
            if (options.flag("keep-running")) {
                obey();
            }
            stop();
            failIfNotExact();
            return true;
        } catch (Exception e) {
            String why = ledger.error() == null ? causes(e) : ledger.error();
            Json.event("failed", "restored", options.get("restore") != null, "exact", false, "why", why);
            return false;
        } finally {
            ledger.close();
        }
    }

    private void submit(Configuration configuration) throws Exception {
        JobGraph graph = jobGraph(configuration);
        if (options.get("job-id") != null) {
            graph.setJobID(JobID.fromHexString(options.get("job-id"))); // as $internal.pipeline.job-id does
        }
        job = graph.getJobID();
        String rest = cluster.getRestAddress().get(PATIENCE_SECONDS, TimeUnit.SECONDS).toString();
        Json.event("job", "jobId", job.toHexString(), "rest", rest);
        cluster.submitJob(graph).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        result = cluster.requestJobResult(job);
    }

    private JobGraph jobGraph(Configuration configuration) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        Pipeline.add(environment, workload);
        StreamGraph graph = environment.getStreamGraph();
        graph.setJobName(options.get("job-name", graph.getJobName()));
        return graph.getJobGraph();
    }

    private void proveRestored() throws Exception {
        await("every subtask to report its restored state: " + ledger.progress(), ledger::everyoneReported);
        String[] path = options.get("restore").split("/chk-");
        long checkpoint = path.length == 2 ? Long.parseLong(path[1]) : options.number("checkpoint-id", -1);
        Map<String, Object> verdict = ledger.verdict(checkpoint);
        failIfNotExact();
        await("the records in flight at the checkpoint", ledger::caughtUp);
        Map<String, Object> row = Json.object("event", "restored", "restored", true, "exact", true);
        row.putAll(verdict);
        Json.print(row);
    }

    /** Every key has state before the first checkpoint, and a restored job makes progress before its next one. */
    private void awaitFirstRecords() throws Exception {
        long wanted = options.get("restore") != null ? workload.keys : (Workload.SPLITS + 1L) * workload.keys;
        await("records", () -> ledger.records() >= wanted);
    }

    /** A subtask reports its state while it is being initialised; only one that runs takes checkpoints. */
    private boolean everyoneRuns() {
        for (AccessExecutionVertex vertex : cluster.getExecutionGraph(job).join().getAllExecutionVertices()) {
            if (vertex.getExecutionState() != ExecutionState.RUNNING) {
                return false;
            }
        }
        return true;
    }

    private void checkpoints(int count) throws Exception {
        for (int i = 0; i < count; i++) {
            checkpoint();
        }
    }

    /** Flink keeps a subsumed checkpoint for as long as newer ones use its files. */
    private void checkpointsUntilGone(Path path) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (Files.exists(path)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(path + " was not deleted");
            }
            checkpoint();
        }
    }

    private void checkpoint() throws Exception {
        long before = ledger.records();
        String path = cluster.triggerCheckpoint(job).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        Json.event("checkpoint", "path", path, "id", Long.parseLong(path.substring(path.lastIndexOf('-') + 1)));
        await("records between checkpoints", () -> ledger.records() > before + workload.keys / 2);
    }

    private void savepoint(String directory, String format) throws Exception {
        String path = cluster.triggerSavepoint(job, directory, false, SavepointFormatType.valueOf(format))
                .get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        Json.event("savepoint", "path", path);
    }

    /** Takes `checkpoint` and `stop` from stdin, and begins a checkpoint every `--interval-ms`, as Flink does. */
    private void obey() throws Exception {
        long interval = TimeUnit.MILLISECONDS.toNanos(options.number("interval-ms", 0));
        long began = System.nanoTime();
        while (true) {
            long left = interval > 0 ? began + interval - System.nanoTime() : TimeUnit.MILLISECONDS.toNanos(200);
            String command = commands.poll(left, TimeUnit.NANOSECONDS);
            failIfEnded();
            if ("stop".equals(command)) {
                return;
            }
            if ("checkpoint".equals(command) || (command == null && interval > 0)) {
                began = System.nanoTime();
                checkpoint();
            }
        }
    }

    private void stop() throws Exception {
        cluster.cancelJob(job).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        result.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private interface Condition {
        boolean holds();
    }

    private void await(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!condition.holds()) {
            failIfEnded();
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.sleep(10);
        }
    }

    private void failIfEnded() throws Exception {
        if (result.isDone()) {
            result.get().toJobExecutionResult(getClass().getClassLoader());
            throw new IllegalStateException("the job ended");
        }
    }

    private void failIfNotExact() {
        if (ledger.error() != null) {
            throw new IllegalStateException(ledger.error());
        }
    }

    private static String causes(Throwable thrown) {
        StringBuilder text = new StringBuilder();
        for (Throwable t = ExceptionUtils.stripExecutionException(thrown); t != null; t = t.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ").append(t.getClass().getSimpleName()).append(": ").append(t.getMessage());
        }
        return text.toString();
    }

    private MiniClusterConfiguration clusterConfiguration(Configuration configuration) {
        return new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(parallelism)
                .withRandomPorts()
                .build();
    }

    private Configuration configuration() {
        Configuration configuration = new Configuration();
        set(configuration, "parallelism.default", Integer.toString(parallelism));
        set(configuration, "restart-strategy.type", "none");
        set(configuration, "web.refresh-interval", options.get("rest-refresh-ms", "3000"));
        Session.common(configuration);
        set(configuration, "execution.checkpointing.interval", "1d"); // the harness triggers them
        set(configuration, "execution.checkpointing.timeout", "60s");
        set(configuration, "execution.checkpointing.storage", "filesystem");
        set(configuration, "execution.checkpointing.dir", options.get("checkpoints"));
        set(configuration, "execution.checkpointing.num-retained", options.get("retained", "3"));
        set(configuration, "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        set(configuration, "execution.checkpointing.data-inline-threshold", "512b");
        backend(configuration);
        if (options.get("restore") != null) {
            set(configuration, "execution.state-recovery.path", options.get("restore"));
            set(configuration, "execution.state-recovery.claim-mode", options.get("claim-mode", "NO_CLAIM"));
        }
        return configuration;
    }

    private void backend(Configuration configuration) {
        set(configuration, "state.backend.type", options.get("backend", "rocksdb"));
        set(configuration, "execution.checkpointing.incremental", "true");
        if (options.flag("disaggregated")) { // else operators like ours, with synchronous state, have it locally
            set(configuration, "state.backend.forst.sync.enforce-local", "false");
        }
        if (options.flag("file-merging") || options.flag("file-merging-across")) {
            set(configuration, "execution.checkpointing.file-merging.enabled", "true");
            set(configuration, "execution.checkpointing.file-merging.across-checkpoint-boundary",
                    Boolean.toString(options.flag("file-merging-across")));
        }
        if (options.flag("unaligned")) {
            set(configuration, "execution.checkpointing.unaligned.enabled", "true");
            set(configuration, "execution.checkpointing.aligned-checkpoint-timeout", "0s");
        }
        if (options.get("changelog") != null) {
            set(configuration, "state.changelog.enabled", "true");
            set(configuration, "state.changelog.storage", "filesystem");
            set(configuration, "state.changelog.dstl.dfs.base-path", options.get("changelog"));
            // long enough for the subtasks of one checkpoint to share a file
            set(configuration, "state.changelog.dstl.dfs.batch.persist-delay", "200ms");
            set(configuration, "state.changelog.periodic-materialize.interval", options.get("materialize", "1s"));
        }
    }

    private static void set(Configuration configuration, String key, String value) {
        configuration.setString(key, value);
    }
}
