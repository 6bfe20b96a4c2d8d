package cpreplicate.streaming;

import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.sink.filesystem.BucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.RollingPolicy;
import org.apache.flink.streaming.api.functions.sink.filesystem.StreamingFileSink;

/** The sink that FileSink replaces. Flink 2 has it no more. */
public final class Streaming {
    private Streaming() {}

    public static void add(
            DataStream<String> stream, Path out, BucketAssigner<String, String> buckets, RollingPolicy<String, String> rolling) {
        stream.addSink(StreamingFileSink.<String>forRowFormat(out, new SimpleStringEncoder<>())
                        .withBucketAssigner(buckets).withRollingPolicy(rolling).build())
                .uid("sink").name("out");
    }
}
