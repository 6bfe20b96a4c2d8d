package cpreplicate;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.dynamic.metadata.SingleClusterTopicMetadataService;
import org.apache.flink.connector.kafka.dynamic.source.DynamicKafkaSource;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Reads records "name|number" whose numbers count from 0 for each name, counts exactly which were
 * lost or doubled, and writes them on, exactly once. Arguments are key=value. It is run once for
 * each checkpoint in `from`.
 */
public final class KafkaJob {
    /** By name: the next number, and how many were lost and doubled, as the last record left them. */
    private static final Map<String, long[]> COUNTS = new ConcurrentHashMap<>();
    /** By name: the number of the first record of this run. */
    private static final Map<String, Long> FIRST = new ConcurrentHashMap<>();
    private static final AtomicLong CHECKPOINTS = new AtomicLong();
    private static volatile long haltAfter = Long.MAX_VALUE;
    private static volatile long haltAt;
    private static volatile long names;
    private static volatile long perCheckpoint = Long.MAX_VALUE;

    private KafkaJob() {}

    /** Reads slowly as soon as this subtask has read `perCheckpoint` records since the last checkpoint. */
    static final class Pace extends RichMapFunction<String, String> implements CheckpointListener {
        private transient long since;

        @Override
        public String map(String record) throws Exception {
            if (++since > perCheckpoint) {
                Thread.sleep(20);
            }
            return record;
        }

        @Override
        public void notifyCheckpointComplete(long id) {
            since = 0;
        }
    }

    /** Counts what is lost and doubled, in keyed state. */
    static final class Count extends KeyedProcessFunction<String, String, String>
            implements CheckpointListener, CheckpointedFunction {
        private transient ValueState<Long> next;
        private transient ValueState<Long> lost;
        private transient ValueState<Long> doubled;
        private transient long seen;
        private transient long seenBefore; // the last snapshot
        private transient boolean hasAll; // at the last snapshot, every partition had been read from
        private transient boolean hadAll; // and at the one before: so this checkpoint has an offset of each
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
            FIRST.putIfAbsent(context.getCurrentKey(), number);
            COUNTS.put(context.getCurrentKey(), new long[] {of(next), of(lost), of(doubled)});
            out.collect(record);
            seen++;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            hasPending = seen > seenBefore;
            seenBefore = seen;
            hadAll = hasAll;
            hasAll = COUNTS.size() >= names;
        }

        /** Ends the process before the sink learns of the checkpoint: its transactions stay pending. */
        @Override
        public void notifyCheckpointComplete(long id) {
            if (hasPending && hadAll && seenBefore >= haltAfter && id >= haltAt) {
                halt(id);
            }
            CHECKPOINTS.incrementAndGet();
        }
    }

    /** Ends the process. Of two subtasks that come here, only one prints. */
    private static synchronized void halt(long checkpoint) {
        System.out.println("{\"event\": \"halted\", \"checkpoint\": " + checkpoint + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Configuration configuration(Map<String, String> arguments) {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", arguments.getOrDefault("interval", "500ms"));
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("execution.checkpointing.num-retained", arguments.getOrDefault("retained", "3"));
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

    /** A KafkaSource, or with `dynamic` a DynamicKafkaSource whose cluster has that id. */
    private static Source<String, ?, ?> source(Map<String, String> arguments) {
        String[] topics = arguments.get("topics").split(",");
        if (!arguments.containsKey("dynamic")) {
            return KafkaSource.<String>builder()
                    .setBootstrapServers(arguments.get("brokers"))
                    .setTopics(topics)
                    .setGroupId("cpreplicate")
                    .setStartingOffsets(OffsetsInitializer.earliest())
                    .setValueOnlyDeserializer(new SimpleStringSchema())
                    .setProperties(smallFetches())
                    .build();
        }
        Properties cluster = new Properties();
        cluster.setProperty("bootstrap.servers", arguments.get("brokers"));
        return DynamicKafkaSource.<String>builder()
                .setStreamIds(Set.of(topics))
                .setKafkaMetadataService(new SingleClusterTopicMetadataService(arguments.get("dynamic"), cluster))
                .setGroupId("cpreplicate")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setDeserializer(KafkaRecordDeserializationSchema.valueOnly(new SimpleStringSchema()))
                .setProperties(smallFetches())
                .build();
    }

    /** With these, no partition is read to its end before the others. */
    private static Properties smallFetches() {
        Properties properties = new Properties();
        properties.setProperty("max.partition.fetch.bytes", "800");
        properties.setProperty("max.poll.records", "50");
        return properties;
    }

    /** Calls a function of the legacy connectors, which are compiled for the connector 3.x only. */
    private static Object legacy(String name, Class<?> first, Class<?> second, Object... values) throws Exception {
        return Class.forName("cpreplicate.legacy.Legacy")
                .getMethod(name, first, second, Properties.class).invoke(null, values);
    }

    @SuppressWarnings("unchecked")
    private static DataStream<String> legacySource(
            StreamExecutionEnvironment environment, Map<String, String> arguments) throws Exception {
        Properties properties = smallFetches();
        properties.setProperty("bootstrap.servers", arguments.get("brokers"));
        properties.setProperty("group.id", "cpreplicate");
        return (DataStream<String>) legacy("source", StreamExecutionEnvironment.class, List.class,
                environment, List.of(arguments.get("topics").split(",")), properties);
    }

    private static void legacySink(DataStream<String> counted, Map<String, String> arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", arguments.get("brokers"));
        properties.setProperty("transaction.timeout.ms", "600000");
        legacy("sink", DataStream.class, String.class, counted, arguments.getOrDefault("out", "out"), properties);
    }

    private static JobGraph graph(Configuration configuration, Map<String, String> arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(2);
        environment.setMaxParallelism(16);
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(arguments.get("brokers"))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(arguments.getOrDefault("transactions", "cpreplicate"))
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(arguments.getOrDefault("out", "out"))
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        boolean isLegacy = arguments.containsKey("legacy");
        DataStream<String> read = isLegacy
                ? legacySource(environment, arguments)
                : environment.fromSource(source(arguments), WatermarkStrategy.noWatermarks(), "orders source")
                        .uid("source");
        DataStream<String> counted = read.map(new Pace()).returns(Types.STRING).uid("pace")
                .keyBy(record -> record.substring(0, record.lastIndexOf('|')), Types.STRING)
                .process(new Count()).returns(Types.STRING).uid("count");
        if (isLegacy) {
            legacySink(counted, arguments);
        } else {
            counted.sinkTo(sink).uid("sink").name("out");
        }
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
        names = Long.parseLong(arguments.get("names"));
        haltAt = Long.parseLong(arguments.getOrDefault("haltAt", "0"));
        perCheckpoint = Long.parseLong(arguments.getOrDefault("perCheckpoint", "" + Long.MAX_VALUE));
        for (String start : arguments.getOrDefault("from", "").split(",")) {
            if (!start.isEmpty()) {
                arguments.put("from", start);
            }
            COUNTS.clear();
            FIRST.clear();
            print(run(arguments));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void print(String failure) {
        StringBuilder counts = new StringBuilder();
        new TreeMap<>(COUNTS).forEach((name, count) -> counts.append(counts.length() > 0 ? ", " : "")
                .append('"').append(name).append("\": [").append(count[0]).append(", ").append(count[1]).append(", ")
                .append(count[2]).append(", ").append(FIRST.get(name)).append(']'));
        System.out.println("{\"event\": \"ended\", \"failure\": " + (failure == null ? "null" : '"' + failure + '"')
                + ", \"counts\": {" + counts + "}}");
        System.out.flush();
    }
}
