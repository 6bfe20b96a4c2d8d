package cpreplicate;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Reads records "name|number" whose numbers count from 0 for each name, counts exactly which were
 * lost or doubled, and writes them on, exactly once. Arguments are key=value.
 */
public final class KafkaJob {
    /** By name: the next number, and how many were lost and doubled, as the last record left them. */
    private static final Map<String, long[]> COUNTS = new ConcurrentHashMap<>();
    private static final AtomicLong CHECKPOINTS = new AtomicLong();
    private static volatile long haltAfter = Long.MAX_VALUE;
    private static volatile int sleepEvery;

    private KafkaJob() {}

    /** Counts what is lost and doubled, in keyed state. */
    static final class Count extends KeyedProcessFunction<String, String, String>
            implements CheckpointListener, CheckpointedFunction {
        private transient ValueState<Long> next;
        private transient ValueState<Long> lost;
        private transient ValueState<Long> doubled;
        private transient long seen;
        private transient long seenBefore; // the last snapshot
        private transient boolean hasPending; // of the last snapshot: records were written on since the one before

        @Override
        public void open(OpenContext context) {
            next = state("next");
            lost = state("lost");
            doubled = state("doubled");
        }

        private ValueState<Long> state(String name) {
            return getRuntimeContext().getState(new ValueStateDescriptor<>(name, Types.LONG));
        }

        private static long of(ValueState<Long> state) throws Exception {
            Long value = state.value();
            return value == null ? 0 : value;
        }

        @Override
        public void processElement(String record, Context context, Collector<String> out) throws Exception {
            long number = Long.parseLong(record.substring(record.lastIndexOf('|') + 1));
            long expected = of(next);
            lost.update(of(lost) + Math.max(0, number - expected));
            doubled.update(of(doubled) + (number < expected ? 1 : 0));
            next.update(Math.max(expected, number + 1));
            COUNTS.put(context.getCurrentKey(), new long[] {of(next), of(lost), of(doubled)});
            out.collect(record);
            seen++;
            if (sleepEvery > 0 && seen % sleepEvery == 0) {
                Thread.sleep(1);
            }
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            hasPending = seen > seenBefore;
            seenBefore = seen;
        }

        /** Ends the process before the sink learns of the checkpoint: its transactions stay pending. */
        @Override
        public void notifyCheckpointComplete(long id) {
            if (hasPending && seenBefore >= haltAfter) {
                System.out.println("{\"event\": \"halted\", \"checkpoint\": " + id + "}");
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            CHECKPOINTS.incrementAndGet();
        }
    }

    private static Configuration configuration(Map<String, String> arguments) {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "500ms");
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("execution.checkpointing.num-retained", "3");
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("execution.checkpointing.dir", arguments.get("checkpoints"));
        configuration.setString("state.checkpoints.dir", arguments.get("checkpoints"));
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("taskmanager.memory.managed.size", "32m");
        configuration.setString("taskmanager.memory.network.min", "32m");
        configuration.setString("taskmanager.memory.network.max", "32m");
        configuration.setString("rest.port", "0");
        configuration.setString("rest.bind-port", "0");
        if (arguments.containsKey("from")) {
            configuration.setString("execution.state-recovery.path", arguments.get("from"));
            configuration.setString("execution.state-recovery.claim-mode", "NO_CLAIM");
        }
        return configuration;
    }

    private static JobGraph graph(Configuration configuration, Map<String, String> arguments) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(2);
        environment.setMaxParallelism(16);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(arguments.get("brokers"))
                .setTopics(arguments.get("topics").split(","))
                .setGroupId("cpreplicate")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("max.partition.fetch.bytes", "800") // so that no partition is read to its end first
                .setProperty("max.poll.records", "50")
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(arguments.get("brokers"))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("cpreplicate")
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic("out")
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "orders source").uid("source")
                .keyBy(record -> record.substring(0, record.lastIndexOf('|')), Types.STRING)
                .process(new Count()).returns(Types.STRING).uid("count")
                .sinkTo(sink).uid("sink").name("out");
        JobGraph graph = environment.getStreamGraph().getJobGraph();
        if (arguments.containsKey("from")) {
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.fromConfiguration(configuration));
        }
        return graph;
    }

    /** Runs until every name has come to the number `until` and a checkpoint was completed since, or the job fails. */
    private static String run(Map<String, String> arguments) throws Exception {
        Configuration configuration = configuration(arguments);
        JobGraph graph = graph(configuration, arguments);
        MiniClusterConfiguration ofCluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration).setNumTaskManagers(1).setNumSlotsPerTaskManager(2).build();
        try (MiniCluster cluster = new MiniCluster(ofCluster)) {
            cluster.start();
            cluster.submitJob(graph).get();
            long names = Long.parseLong(arguments.get("names"));
            long until = Long.parseLong(arguments.get("until"));
            BooleanSupplier isRead = () -> COUNTS.values().stream().filter(each -> each[0] >= until).count() >= names;
            while (!isRead.getAsBoolean()) {
                if (hasEnded(cluster, graph)) {
                    return failure(cluster, graph);
                }
                Thread.sleep(50);
            }
            long before = CHECKPOINTS.get();
            while (CHECKPOINTS.get() < before + 4) { // each subtask counts
                if (hasEnded(cluster, graph)) {
                    return failure(cluster, graph);
                }
                Thread.sleep(50);
            }
            cluster.cancelJob(graph.getJobID()).get();
            while (!hasEnded(cluster, graph)) {
                Thread.sleep(50);
            }
            return null;
        }
    }

    private static boolean hasEnded(MiniCluster cluster, JobGraph graph) throws Exception {
        JobStatus status = cluster.getJobStatus(graph.getJobID()).get();
        return status.isGloballyTerminalState();
    }

    private static String failure(MiniCluster cluster, JobGraph graph) {
        StringBuilder text = new StringBuilder("ended");
        try {
            cluster.requestJobResult(graph.getJobID()).get().toJobExecutionResult(KafkaJob.class.getClassLoader());
        } catch (Exception error) {
            for (Throwable each = error; each != null; each = each.getCause()) {
                text.append(" <- ").append(each.getClass().getSimpleName());
            }
        }
        return text.toString();
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> arguments = new TreeMap<>();
        for (String word : words) {
            int equals = word.indexOf('=');
            arguments.put(word.substring(0, equals), word.substring(equals + 1));
        }
        haltAfter = Long.parseLong(arguments.getOrDefault("haltAfter", "" + Long.MAX_VALUE));
        sleepEvery = Integer.parseInt(arguments.getOrDefault("sleepEvery", "0"));
        String failure = run(arguments);
        StringBuilder counts = new StringBuilder();
        new TreeMap<>(COUNTS).forEach((name, count) -> counts.append(counts.length() > 0 ? ", " : "")
                .append('"').append(name).append("\": [").append(count[0]).append(", ").append(count[1]).append(", ")
                .append(count[2]).append(']'));
        System.out.println("{\"event\": \"ended\", \"failure\": " + (failure == null ? "null" : '"' + failure + '"')
                + ", \"counts\": {" + counts + "}}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
