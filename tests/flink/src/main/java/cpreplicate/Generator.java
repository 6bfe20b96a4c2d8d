package cpreplicate;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Endless records (split, index, padding). Each split's offset is in operator list state, the enumerator's in a coordinator's. */
final class Generator implements Source<Tuple3<Integer, Long, byte[]>, Generator.Split, Integer> {
    private static final int BATCH = 20;

    static final class Split implements SourceSplit {
        final int id;
        final long next;

        Split(int id, long next) {
            this.id = id;
            this.next = next;
        }

        @Override
        public String splitId() {
            return Integer.toString(id);
        }
    }

    private final Workload workload;

    Generator(Workload workload) {
        this.workload = workload;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<Tuple3<Integer, Long, byte[]>, Split> createReader(SourceReaderContext context) {
        return new Reader(workload);
    }

    @Override
    public SplitEnumerator<Split, Integer> createEnumerator(SplitEnumeratorContext<Split> context) {
        return new Enumerator(context, (1 << Workload.SPLITS) - 1);
    }

    @Override
    public SplitEnumerator<Split, Integer> restoreEnumerator(SplitEnumeratorContext<Split> context, Integer unassigned) {
        return new Enumerator(context, unassigned);
    }

    @Override
    public SimpleVersionedSerializer<Split> getSplitSerializer() {
        return new SplitSerializer();
    }

    @Override
    public SimpleVersionedSerializer<Integer> getEnumeratorCheckpointSerializer() {
        return new MaskSerializer();
    }

    private static final class Reader implements SourceReader<Tuple3<Integer, Long, byte[]>, Split> {
        private final Workload workload;
        private final TreeMap<Integer, Long> next = new TreeMap<>();
        private CompletableFuture<Void> available = new CompletableFuture<>();
        private boolean started;
        private int sinceSleep;

        Reader(Workload workload) {
            this.workload = workload;
        }

        @Override
        public void start() {
            started = true;
        }

        @Override
        public void addSplits(List<Split> splits) {
            for (Split split : splits) {
                next.put(split.id, split.next);
                if (!started) { // what Flink hands over before it starts the reader comes from the checkpoint
                    Ledger.of(workload).restoredOffset(split.id, split.next);
                }
            }
            available.complete(null);
        }

        @Override
        public InputStatus pollNext(ReaderOutput<Tuple3<Integer, Long, byte[]>> output) throws InterruptedException {
            if (next.isEmpty()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            for (int split : next.keySet()) {
                long index = next.get(split);
                output.collect(Tuple3.of(split, index, workload.padding(index)));
                next.put(split, index + 1);
            }
            if (++sinceSleep >= BATCH) {
                sinceSleep = 0;
                Thread.sleep(10);
            }
            return InputStatus.MORE_AVAILABLE;
        }

        @Override
        public List<Split> snapshotState(long checkpointId) {
            List<Split> splits = new ArrayList<>();
            next.forEach((id, index) -> splits.add(new Split(id, index)));
            return splits;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            if (next.isEmpty() && available.isDone()) {
                available = new CompletableFuture<>();
            }
            return available;
        }

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }

    /** Hands each reader its splits when it registers first. */
    private static final class Enumerator implements SplitEnumerator<Split, Integer> {
        private final SplitEnumeratorContext<Split> context;
        private final Collection<Integer> unassigned = new TreeSet<>();

        /** Each bit of the mask is a split that no reader has yet. */
        Enumerator(SplitEnumeratorContext<Split> context, int mask) {
            this.context = context;
            for (int split = 0; split < Workload.SPLITS; split++) {
                if ((mask & 1 << split) != 0) {
                    unassigned.add(split);
                }
            }
        }

        @Override
        public void addReader(int subtask) {
            for (int split : new ArrayList<>(unassigned)) {
                if (split % context.currentParallelism() == subtask) {
                    unassigned.remove(split);
                    context.assignSplit(new Split(split, 0), subtask);
                }
            }
        }

        @Override
        public Integer snapshotState(long checkpointId) {
            return unassigned.stream().mapToInt(split -> 1 << split).sum();
        }

        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<Split> splits, int subtask) {
            throw new IllegalStateException("a reader failed");
        }

        @Override
        public void close() {}
    }

    private static final class SplitSerializer implements SimpleVersionedSerializer<Split> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Split split) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (DataOutputStream out = new DataOutputStream(bytes)) {
                out.writeInt(split.id);
                out.writeLong(split.next);
            }
            return bytes.toByteArray();
        }

        @Override
        public Split deserialize(int version, byte[] bytes) throws IOException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new Split(in.readInt(), in.readLong());
        }
    }

    private static final class MaskSerializer implements SimpleVersionedSerializer<Integer> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Integer mask) {
            return new byte[] {mask.byteValue()};
        }

        @Override
        public Integer deserialize(int version, byte[] bytes) {
            return (int) bytes[0];
        }
    }
}
