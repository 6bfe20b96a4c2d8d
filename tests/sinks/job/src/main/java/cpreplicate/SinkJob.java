package cpreplicate;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.BucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.PartFileInfo;
import org.apache.flink.streaming.api.functions.sink.filesystem.RollingPolicy;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.SimpleVersionedStringSerializer;

/**
 * Writes the numbers from 0 to `until` into part files, exactly once, one a line, even and odd ones
 * in buckets of their own. Arguments are key=value. `sink` is one of `row`, `streaming` and
 * `compacting`. Those that begin with `s3.` are configuration. With `haltAt`, the process ends when that checkpoint is complete.
 */
public final class SinkJob {
    private static volatile int parallelism;
    private static final AtomicInteger ARRIVED = new AtomicInteger();
    private static volatile long haltAt = Long.MAX_VALUE;
    private static volatile long perCheckpoint = Long.MAX_VALUE;
    private static volatile long size;

    private SinkJob() {}

    /** Goes on slowly as soon as it had `perCheckpoint` records since the last checkpoint. */
    static final class Pace extends RichMapFunction<Long, String> implements CheckpointListener {
        private transient long since;

        @Override
        public String map(Long number) throws Exception {
            if (++since > perCheckpoint) {
                Thread.sleep(20);
            }
            return number.toString();
        }

        /** The sink is in the same task, and learns of a checkpoint first. */
        @Override
        public void notifyCheckpointComplete(long id) throws Exception {
            since = 0;
            if (id < haltAt) {
                return;
            }
            if (ARRIVED.incrementAndGet() == parallelism) {
                print("{\"event\": \"halted\", \"checkpoint\": " + id + "}");
                Runtime.getRuntime().halt(0);
            }
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    /** Even and odd numbers. */
    static final class Buckets implements BucketAssigner<String, String> {
        @Override
        public String getBucketId(String record, Context context) {
            return Long.parseLong(record) % 2 == 0 ? "even" : "odd";
        }

        @Override
        public SimpleVersionedSerializer<String> getSerializer() {
            return SimpleVersionedStringSerializer.INSTANCE;
        }
    }

    /** A file has some `size` bytes. */
    static final class Rolling implements RollingPolicy<String, String> {
        @Override
        public boolean shouldRollOnCheckpoint(PartFileInfo<String> file) {
            return false;
        }

        @Override
        public boolean shouldRollOnEvent(PartFileInfo<String> file, String record) throws java.io.IOException {
            return file.getSize() >= size;
        }

        @Override
        public boolean shouldRollOnProcessingTime(PartFileInfo<String> file, long now) {
            return false;
        }
    }

    private static Configuration configuration(Map<String, String> arguments) {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "300ms");
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("state.checkpoints.num-retained", "2");
        configuration.setString("execution.checkpointing.num-retained", "2");
        configuration.setString("state.checkpoints.dir", arguments.get("checkpoints"));
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("execution.checkpointing.dir", arguments.get("checkpoints"));
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("restart-strategy", "none");
        configuration.setString("taskmanager.memory.managed.size", "32m");
        configuration.setString("taskmanager.memory.network.min", "32m");
        configuration.setString("taskmanager.memory.network.max", "32m");
        configuration.setString("rest.port", "0");
        configuration.setString("rest.bind-port", "0");
        arguments.forEach((key, value) -> {
            if (key.startsWith("s3.")) {
                configuration.setString(key, value);
            }
        });
        if (arguments.containsKey("from")) {
            configuration.setString("execution.savepoint.path", arguments.get("from"));
            configuration.setString("execution.state-recovery.path", arguments.get("from"));
            configuration.setString("execution.state-recovery.claim-mode", "NO_CLAIM");
        }
        return configuration;
    }

    /** The class of a sink that not each Flink has is in a package of its own. */
    private static void add(String sink, DataStream<String> stream, Path out) throws Exception {
        if (!sink.equals("row")) {
            Class.forName("cpreplicate." + sink + "." + Character.toUpperCase(sink.charAt(0)) + sink.substring(1))
                    .getMethod("add", DataStream.class, Path.class, BucketAssigner.class, RollingPolicy.class)
                    .invoke(null, stream, out, new Buckets(), new Rolling());
            return;
        }
        stream.sinkTo(FileSink.<String>forRowFormat(out, new SimpleStringEncoder<>())
                        .withBucketAssigner(new Buckets()).withRollingPolicy(new Rolling()).build())
                .uid("sink").name("out");
    }

    private static JobGraph graph(Configuration configuration, Map<String, String> arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(parallelism);
        environment.setMaxParallelism(16);
        long until = Long.parseLong(arguments.get("until"));
        DataStream<String> numbers = environment.fromSource(new NumberSequenceSource(0, until - 1), WatermarkStrategy.noWatermarks(), "numbers")
                .uid("numbers")
                .map(new Pace()).returns(Types.STRING).uid("pace");
        add(arguments.getOrDefault("sink", "row"), numbers, new Path(arguments.get("out")));
        JobGraph graph = environment.getStreamGraph().getJobGraph();
        if (arguments.containsKey("from")) {
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.fromConfiguration(configuration));
        }
        return graph;
    }

    /** Runs to the last number, or until the job fails. Returns why it did. */
    private static String run(Map<String, String> arguments) throws Exception {
        Configuration configuration = configuration(arguments);
        FileSystem.initialize(configuration, null);
        JobGraph graph = graph(configuration, arguments);
        MiniClusterConfiguration ofCluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration).setNumTaskManagers(1).setNumSlotsPerTaskManager(parallelism).build();
        try (MiniCluster cluster = new MiniCluster(ofCluster)) {
            cluster.start();
            cluster.submitJob(graph).get();
            cluster.requestJobResult(graph.getJobID()).get().toJobExecutionResult(SinkJob.class.getClassLoader());
            return null;
        } catch (Exception error) {
            StringBuilder text = new StringBuilder("ended");
            for (Throwable each = error; each != null; each = each.getCause()) {
                text.append(" <- ").append(each.getClass().getSimpleName()).append(": ").append(each.getMessage());
            }
            return text.toString();
        }
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> arguments = new TreeMap<>();
        for (String word : words) {
            int equals = word.indexOf('=');
            arguments.put(word.substring(0, equals), word.substring(equals + 1));
        }
        haltAt = Long.parseLong(arguments.getOrDefault("haltAt", "" + Long.MAX_VALUE));
        parallelism = Integer.parseInt(arguments.getOrDefault("parallelism", "2"));
        size = Long.parseLong(arguments.getOrDefault("size", "500"));
        perCheckpoint = Long.parseLong(arguments.getOrDefault("perCheckpoint", "" + Long.MAX_VALUE));
        String failure = run(arguments);
        String quoted = failure == null ? "null" : '"' + failure.replaceAll("[^ -~]|[\"\\\\]", " ") + '"';
        print("{\"event\": \"ended\", \"failure\": " + quoted + "}");
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
