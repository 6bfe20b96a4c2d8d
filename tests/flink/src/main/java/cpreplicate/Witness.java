package cpreplicate;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** Chained to the source: keeps the offsets that passed in list and in union state, and lines of the checkpoint's id in broadcast state. */
final class Witness extends AbstractStreamOperator<Tuple3<Integer, Long, byte[]>>
        implements OneInputStreamOperator<Tuple3<Integer, Long, byte[]>, Tuple3<Integer, Long, byte[]>> {
    private final Workload workload;
    private transient Map<Integer, Long> next;
    private transient ListState<String> list;
    private transient ListState<String> union;
    private transient BroadcastState<Integer, String> broadcast;

    Witness(Workload workload) {
        this.workload = workload;
    }

    @Override
    public void processElement(StreamRecord<Tuple3<Integer, Long, byte[]>> record) {
        next.put(record.getValue().f0, record.getValue().f1 + 1);
        output.collect(record);
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        next = new TreeMap<>();
        list = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("list", Types.STRING));
        union = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
        broadcast = context.getOperatorStateStore()
                .getBroadcastState(new MapStateDescriptor<>("broadcast", Types.INT, Types.STRING));
        if (context.isRestored()) {
            restore(restoredCheckpoint(context));
        }
    }

    /** The number of the checkpoint. Flink before 1.14 does not report it: then it is that of the lines. */
    private long restoredCheckpoint(StateInitializationContext context) throws Exception {
        try {
            Object number = StateInitializationContext.class.getMethod("getRestoredCheckpointId").invoke(context);
            return ((OptionalLong) number).orElse(-1);
        } catch (NoSuchMethodException e) {
            return Long.parseLong(union.get().iterator().next().split("/")[3]);
        }
    }

    private void restore(long checkpoint) throws Exception {
        Map<Integer, Long> listed = read("list", list, checkpoint);
        Map<Integer, Long> united = read("union", union, checkpoint);
        next.putAll(listed);
        List<String> lines = new ArrayList<>();
        for (Map.Entry<Integer, String> entry : broadcast.immutableEntries()) {
            while (lines.size() <= entry.getKey()) {
                lines.add("");
            }
            lines.set(entry.getKey(), entry.getValue());
        }
        if (!lines.equals(Ledger.broadcastLines(checkpoint))) {
            Ledger.of(workload).fail("broadcast state is " + lines);
        }
        int subtask = getContainingTask().getEnvironment().getTaskInfo().getIndexOfThisSubtask();
        Ledger.of(workload).restoredWitness(subtask, new Ledger.Witnessed(checkpoint, listed, united));
    }

    private Map<Integer, Long> read(String kind, ListState<String> state, long checkpoint) throws Exception {
        Map<Integer, Long> offsets = new HashMap<>();
        for (String line : state.get()) {
            String[] parts = line.split("/");
            int split = Integer.parseInt(parts[1]);
            long offset = Long.parseLong(parts[2]);
            if (!line.equals(Workload.line(kind, split, offset, checkpoint))) {
                Ledger.of(workload).fail(kind + " state of checkpoint " + checkpoint + " holds " + line);
            }
            offsets.merge(split, offset, Math::max);
        }
        return offsets;
    }

    @Override
    public void snapshotState(StateSnapshotContext context) throws Exception {
        super.snapshotState(context);
        long checkpoint = context.getCheckpointId();
        write("list", list, checkpoint);
        write("union", union, checkpoint);
        broadcast.clear();
        int number = 0;
        for (String line : Ledger.broadcastLines(checkpoint)) {
            broadcast.put(number++, line);
        }
    }

    private void write(String kind, ListState<String> state, long checkpoint) throws Exception {
        List<String> lines = new ArrayList<>();
        next.forEach((split, offset) -> lines.add(Workload.line(kind, split, offset, checkpoint)));
        state.update(lines);
    }
}
