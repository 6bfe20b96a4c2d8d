package cpreplicate;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** Counts the records of each key and split in keyed state, and refuses any that is not the next one. */
final class Counter extends AbstractStreamOperator<Integer>
        implements OneInputStreamOperator<Tuple3<Integer, Long, byte[]>, Integer> {
    private final Workload workload;
    private transient MapState<Integer, Long> counts;
    private transient ValueState<byte[]> tally;
    private transient ValueState<byte[]> ballast;

    Counter(Workload workload) {
        this.workload = workload;
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        counts = context.getKeyedStateStore().getMapState(new MapStateDescriptor<>("counts", Types.INT, Types.LONG));
        tally = context.getKeyedStateStore().getState(
                new ValueStateDescriptor<>("tally", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
        ballast = context.getKeyedStateStore().getState(
                new ValueStateDescriptor<>("ballast", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
        if (context.isRestored()) {
            int subtask = getContainingTask().getEnvironment().getTaskInfo().getIndexOfThisSubtask();
            Ledger.of(workload).restoredCounts(subtask, restoredCounts());
        }
    }

    private Map<Integer, long[]> restoredCounts() throws Exception {
        Map<Integer, long[]> all = new HashMap<>();
        for (int key : keys("tally")) {
            all.put(key, restoredKey(key));
        }
        if (!sameKeys("ballast", all) || !sameKeys("counts", all)) {
            Ledger.of(workload).fail("the three keyed states hold different keys");
        }
        return all;
    }

    private boolean sameKeys(String state, Map<Integer, long[]> all) {
        return all.keySet().equals(keys(state).stream().collect(Collectors.toSet()));
    }

    private List<Integer> keys(String state) {
        KeyedStateBackend<Integer> backend = getKeyedStateBackend();
        try (Stream<Integer> keys = backend.getKeys(state, VoidNamespace.INSTANCE)) {
            return keys.collect(Collectors.toList());
        }
    }

    private long[] restoredKey(int key) throws Exception {
        setCurrentKey(key);
        long[] found = new long[Workload.SPLITS];
        for (Map.Entry<Integer, Long> entry : counts.entries()) {
            found[entry.getKey()] = entry.getValue();
        }
        if (!Arrays.equals(tally.value(), workload.tally(key, Arrays.stream(found).sum()))) {
            Ledger.of(workload).fail("the tally of key " + key + " is not that of its counts");
        }
        if (!Arrays.equals(ballast.value(), workload.ballast(key))) {
            Ledger.of(workload).fail("the ballast of key " + key + " has changed");
        }
        return found;
    }

    @Override
    public void processElement(StreamRecord<Tuple3<Integer, Long, byte[]>> record) throws Exception {
        int split = record.getValue().f0;
        long index = record.getValue().f1;
        int key = workload.key(split, index);
        Long stored = counts.get(split);
        long count = stored == null ? 0 : stored;
        if (index != workload.index(split, key, count)) {
            Ledger.of(workload).fail("record " + index + " of split " + split + " came after " + count + " for key " + key);
            throw new IllegalStateException(Ledger.of(workload).error());
        }
        counts.put(split, count + 1);
        if (ballast.value() == null) {
            ballast.update(workload.ballast(key));
        }
        tally.update(workload.tally(key, visits()));
        Ledger.of(workload).counted(key, split, count + 1);
        slowDown();
    }

    private long visits() throws Exception {
        long visits = 0;
        for (Long count : counts.values()) {
            visits += count;
        }
        return visits;
    }

    private void slowDown() throws InterruptedException {
        if (workload.slowMicros > 0) {
            Thread.sleep(workload.slowMicros / 1000, workload.slowMicros % 1000 * 1000);
        }
    }
}
