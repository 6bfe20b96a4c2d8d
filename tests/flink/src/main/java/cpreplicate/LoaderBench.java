package cpreplicate;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;

/** How long Flink's own loader takes for each `_metadata` file given: warm, the best of five. */
public final class LoaderBench {
    private static final int ROUNDS = 5;
    private static final int BUFFER = 64 * 1024;

    private LoaderBench() {}

    public static void main(String[] files) throws IOException {
        for (String file : files) {
            load(file); // warms the code and the page cache
            double best = Double.MAX_VALUE;
            for (int round = 0; round < ROUNDS; round++) {
                System.gc();
                best = Math.min(best, load(file));
            }
            Json.print(Json.object("path", file, "seconds", best));
        }
    }

    private static double load(String file) throws IOException {
        String pointer = Path.of(file).toAbsolutePath().getParent().toUri().toString();
        long start = System.nanoTime();
        CheckpointMetadata metadata;
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(Path.of(file)), BUFFER))) {
            metadata = Checkpoints.loadCheckpointMetadata(in, LoaderBench.class.getClassLoader(), pointer);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        if (metadata.getOperatorStates().isEmpty()) {
            throw new IOException(file + " holds no operators");
        }
        return seconds;
    }
}
