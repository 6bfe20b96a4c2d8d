package cpreplicate.compacting;

import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.sink.compactor.ConcatFileCompactor;
import org.apache.flink.connector.file.sink.compactor.FileCompactStrategy;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.sink.filesystem.BucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.RollingPolicy;

/** A FileSink that compacts its files. Flink 1.13 has none. */
public final class Compacting {
    private Compacting() {}

    public static void add(
            DataStream<String> stream, Path out, BucketAssigner<String, String> buckets, RollingPolicy<String, String> rolling) {
        FileCompactStrategy strategy =
                FileCompactStrategy.Builder.newBuilder().enableCompactionOnCheckpoint(2).build();
        stream.sinkTo(FileSink.<String>forRowFormat(out, new SimpleStringEncoder<>())
                        .withBucketAssigner(buckets).withRollingPolicy(rolling)
                        .enableCompact(strategy, new ConcatFileCompactor()).build())
                .uid("sink").name("out");
    }
}
