package cpreplicate;

import java.util.UUID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * The program of a job of a session cluster. It fails if a record is lost or doubled, or if a restored state is not that
 * of its checkpoint.
 */
public final class SessionJob {
    private SessionJob() {}

    public static void main(String[] words) throws Exception {
        Options options = new Options(words, 0);
        Configuration configuration = new Configuration();
        set(configuration, "none", "restart-strategy.type", "restart-strategy");
        set(configuration, options.get("interval-ms", "86400000") + " ms", "execution.checkpointing.interval");
        set(configuration, "filesystem", "execution.checkpointing.storage", "state.checkpoint-storage");
        set(configuration, options.get("checkpoints"), "execution.checkpointing.dir", "state.checkpoints.dir");
        set(configuration, options.get("retained", "1"), "execution.checkpointing.num-retained");
        set(configuration, options.get("retention", "RETAIN_ON_CANCELLATION"),
                "execution.checkpointing.externalized-checkpoint-retention");
        set(configuration, "512b", "execution.checkpointing.data-inline-threshold", "state.storage.fs.memory-threshold");
        set(configuration, "true", "execution.checkpointing.incremental", "state.backend.incremental");
        set(configuration, options.get("backend", "rocksdb"), "state.backend.type", "state.backend");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(options.number("parallelism", 2));
        Pipeline.add(environment, new Workload(
                UUID.randomUUID().toString(),
                options.number("keys", 1000),
                options.number("padding", 100),
                options.number("slow-micros", 0),
                false));
        environment.execute(options.get("job-name", "orders"));
    }

    /** Set an option by its name, and by that of a Flink before 1.20. */
    private static void set(Configuration configuration, String value, String... names) {
        for (String name : names) {
            configuration.setString(name, value);
        }
    }
}
