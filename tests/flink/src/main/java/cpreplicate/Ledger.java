package cpreplicate;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Where the operators of a run (all in this JVM) report what they restored, before they process anything, and where it is
 * compared. Operators find the ledger of their run by its name.
 */
final class Ledger {
    private static final Map<String, Ledger> LEDGERS = new ConcurrentHashMap<>();

    /** What one witness subtask restored. */
    static final class Witnessed {
        final long checkpoint;
        final Map<Integer, Long> list;
        final Map<Integer, Long> union;

        Witnessed(long checkpoint, Map<Integer, Long> list, Map<Integer, Long> union) {
            this.checkpoint = checkpoint;
            this.list = list;
            this.union = union;
        }
    }

    private final Workload workload;
    private final int parallelism;
    private final boolean throwing;
    private final Map<Integer, Long> offsets = new ConcurrentHashMap<>();
    private final Map<Integer, Witnessed> witnesses = new ConcurrentHashMap<>();
    private final Map<Integer, Map<Integer, long[]>> restoredCounts = new ConcurrentHashMap<>();
    private final Map<Integer, AtomicLongArray> live = new ConcurrentHashMap<>();
    private final AtomicLong records = new AtomicLong();
    private volatile String error;

    Ledger(Workload workload, int parallelism) {
        this(workload, parallelism, false);
        LEDGERS.put(workload.ledger, this);
    }

    private Ledger(Workload workload, int parallelism, boolean throwing) {
        this.workload = workload;
        this.parallelism = parallelism;
        this.throwing = throwing;
    }

    /** The ledger of a run; of a job of a session, which nobody watches, one that fails the job. */
    static Ledger of(Workload workload) {
        return LEDGERS.computeIfAbsent(workload.ledger, name -> new Ledger(workload, 0, true));
    }

    void close() {
        LEDGERS.remove(workload.ledger);
    }

    void fail(String why) {
        if (error == null) {
            error = why;
        }
        if (throwing) {
            throw new IllegalStateException(why);
        }
    }

    String error() {
        return error;
    }

    long records() {
        return records.get();
    }

    void restoredOffset(int split, long offset) {
        if (offsets.put(split, offset) != null) {
            fail("split " + split + " was restored twice");
        }
    }

    void restoredWitness(int subtask, Witnessed witnessed) {
        witnesses.put(subtask, witnessed);
    }

    void restoredCounts(int subtask, Map<Integer, long[]> counts) {
        counts.forEach((key, values) -> live.put(key, new AtomicLongArray(values)));
        restoredCounts.put(subtask, counts);
    }

    void counted(int key, int split, long count) {
        live.computeIfAbsent(key, ignored -> new AtomicLongArray(Workload.SPLITS)).set(split, count);
        records.incrementAndGet();
    }

    boolean everyoneReported() {
        return offsets.size() == Workload.SPLITS
                && witnesses.size() == parallelism
                && restoredCounts.size() == parallelism;
    }

    String progress() {
        return "splits " + offsets.keySet() + ", witnesses " + witnesses.keySet() + ", counters " + restoredCounts.keySet();
    }

    /** Compares what was restored with what follows from the restored offsets. */
    Map<String, Object> verdict(long checkpoint) {
        checkWitnesses(checkpoint);
        Map<Integer, long[]> counts = allCounts();
        long inFlight = 0;
        for (int key = 0; key < workload.keys; key++) {
            long[] found = counts.remove(key);
            for (int split = 0; split < Workload.SPLITS; split++) {
                long expected = workload.expectedCount(split, key, offsets.get(split));
                inFlight += checkCount(key, split, expected, found == null ? 0 : found[split]);
            }
        }
        if (!counts.isEmpty()) {
            fail("keys that never were: " + counts.keySet());
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("keys", workload.keys);
        result.put("records", offsets.values().stream().mapToLong(Long::longValue).sum());
        result.put("inFlight", inFlight);
        return result;
    }

    private long checkCount(int key, int split, long expected, long found) {
        if (found > expected || (found < expected && !workload.exactlyOnceInFlight)) {
            fail("key " + key + " of split " + split + " was counted " + found + " times, not " + expected);
        }
        return expected - found;
    }

    /** Whether what was in flight at the checkpoint has been counted too (a gap would have failed the job). */
    boolean caughtUp() {
        for (int key = 0; key < workload.keys; key++) {
            AtomicLongArray counts = live.get(key);
            for (int split = 0; split < Workload.SPLITS; split++) {
                long expected = workload.expectedCount(split, key, offsets.get(split));
                if (expected > 0 && (counts == null || counts.get(split) < expected)) {
                    return false;
                }
            }
        }
        return true;
    }

    private Map<Integer, long[]> allCounts() {
        Map<Integer, long[]> all = new LinkedHashMap<>();
        for (Map<Integer, long[]> part : restoredCounts.values()) {
            part.forEach((key, counts) -> {
                if (all.put(key, counts) != null) {
                    fail("key " + key + " was restored on two subtasks");
                }
            });
        }
        return all;
    }

    private void checkWitnesses(long checkpoint) {
        Map<Integer, Long> list = new LinkedHashMap<>();
        witnesses.forEach((subtask, witnessed) -> {
            if (witnessed.checkpoint != checkpoint) {
                fail("witness " + subtask + " restored checkpoint " + witnessed.checkpoint + ", not " + checkpoint);
            }
            same("union state of witness " + subtask, witnessed.union);
            witnessed.list.forEach((split, next) -> list.merge(split, next, Math::max));
        });
        same("list state", list);
    }

    private void same(String what, Map<Integer, Long> found) {
        if (!found.equals(offsets)) {
            fail(what + " is " + found + ", the source's offsets are " + offsets);
        }
    }

    static List<String> broadcastLines(long checkpoint) {
        List<String> lines = new java.util.ArrayList<>();
        for (int i = 0; i < 20; i++) {
            lines.add(Workload.line("broadcast", i, 0, checkpoint));
        }
        return lines;
    }
}
