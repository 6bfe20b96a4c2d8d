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
        set(configuration, "restart-strategy.type", "none");
        set(configuration, "execution.checkpointing.interval", options.get("interval-ms", "86400000") + " ms");
        set(configuration, "execution.checkpointing.storage", "filesystem");
        set(configuration, "execution.checkpointing.dir", options.get("checkpoints"));
        set(configuration, "execution.checkpointing.num-retained", options.get("retained", "1"));
        set(configuration, "execution.checkpointing.externalized-checkpoint-retention",
                options.get("retention", "RETAIN_ON_CANCELLATION"));
        set(configuration, "execution.checkpointing.data-inline-threshold", "512b");
        set(configuration, "execution.checkpointing.incremental", "true");
        set(configuration, "state.backend.type", options.get("backend", "rocksdb"));
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

    private static void set(Configuration configuration, String key, String value) {
        configuration.setString(key, value);
    }
}
