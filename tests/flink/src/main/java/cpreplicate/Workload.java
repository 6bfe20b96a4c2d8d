package cpreplicate;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Random;

/**
 * The deterministic records of a run: what every state must hold is a pure function of the source offsets.
 *
 * <p>Record i of split s goes to one key; each key is visited once in `keys` consecutive records of a split. So the
 * count of (key, split) follows from the split's offset, and the index of the next record for (key, split) follows from
 * its count: a lost or doubled record is seen the next time that its key is visited.
 */
final class Workload implements Serializable {
    static final int SPLITS = 4;
    private static final int STRIDE = 17;

    final String ledger;
    final int keys;
    final int paddingBytes;
    final int slowMicros;
    final boolean exactlyOnceInFlight;

    Workload(String ledger, int keys, int paddingBytes, int slowMicros, boolean exactlyOnceInFlight) {
        this.ledger = ledger;
        this.keys = keys;
        this.paddingBytes = paddingBytes;
        this.slowMicros = slowMicros;
        this.exactlyOnceInFlight = exactlyOnceInFlight;
    }

    int key(int split, long index) {
        return (int) Math.floorMod(index + (long) STRIDE * split, (long) keys);
    }

    /** The index of the record of `split` that is the one after `count` others for `key`. */
    long index(int split, int key, long count) {
        return count * keys + Math.floorMod(key - (long) STRIDE * split, (long) keys);
    }

    /** How many of the first `offset` records of `split` go to `key`. */
    long expectedCount(int split, int key, long offset) {
        long first = index(split, key, 0);
        return offset <= first ? 0 : (offset - first - 1) / keys + 1;
    }

    /** Bytes that do not compress, so that RocksDB writes files of real size. */
    byte[] padding(long seed) {
        byte[] bytes = new byte[paddingBytes];
        new Random(seed * 0x9E3779B97F4A7C15L + 1).nextBytes(bytes);
        return bytes;
    }

    /** Written once a key and never again: its files are those that outlive jobs. */
    byte[] ballast(int key) {
        return padding(-1L - key);
    }

    /** Written at each visit of the key. */
    byte[] tally(int key, long visits) {
        return padding(key * 1_000_003L + visits);
    }

    static String line(String kind, long a, long b, long checkpoint) {
        byte[] bytes = new byte[64];
        new Random(Arrays.hashCode(new Object[] {kind, a, b, checkpoint})).nextBytes(bytes);
        StringBuilder text = new StringBuilder(kind + "/" + a + "/" + b + "/" + checkpoint + "/");
        for (byte value : bytes) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }
}
