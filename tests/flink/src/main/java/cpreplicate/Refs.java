package cpreplicate;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.IncrementalKeyedStateHandle.HandleAndLocalPath;
import org.apache.flink.runtime.state.IncrementalRemoteKeyedStateHandle;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.changelog.ChangelogStateBackendHandle;
import org.apache.flink.runtime.state.changelog.ChangelogStateHandleStreamImpl;
import org.apache.flink.runtime.state.changelog.inmemory.InMemoryChangelogStateHandle;
import org.apache.flink.runtime.state.filemerging.EmptySegmentFileStateHandle;
import org.apache.flink.runtime.state.filemerging.FileMergingOperatorStreamStateHandle;
import org.apache.flink.runtime.state.filemerging.SegmentFileStateHandle;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.runtime.state.filesystem.RelativeFileStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;

/**
 * What Flink's own loader reads in a `_metadata`: one row a state handle, in the order of the file, then a summary.
 * `refs DIRECTORY [BASE]`: BASE is the directory to resolve its paths against, if not DIRECTORY (Flink loads only what is there).
 * DIRECTORY is a local path, or a URI with an authority (`hdfs://…`).
 */
public final class Refs {
    private final CheckpointMetadata metadata;
    private final int version;
    private final String pointer;
    private final String base;
    private int leaves;
    private int files;
    private int relative;
    private int segments;
    private int inline;
    private String operator;
    private int subtask;

    private Refs(CheckpointMetadata metadata, int version, String pointer, String base) {
        this.metadata = metadata;
        this.version = version;
        this.pointer = pointer;
        this.base = base;
    }

    public static void main(String[] arguments) throws Exception {
        dump(arguments[0], arguments.length > 1 ? arguments[1] : null);
    }

    static void dump(String directory, String base) throws Exception {
        String pointer = remote(directory) ? directory : "file:" + java.nio.file.Path.of(directory).toAbsolutePath();
        new Refs(load(directory, pointer), version(directory), pointer, base != null ? base : pointer).walk();
    }

    private static CheckpointMetadata load(String directory, String pointer) throws IOException {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(open(directory)))) {
            return Checkpoints.loadCheckpointMetadata(in, Refs.class.getClassLoader(), pointer);
        }
    }

    private static int version(String directory) throws IOException {
        try (DataInputStream in = new DataInputStream(open(directory))) {
            in.readInt();
            return in.readInt();
        }
    }

    private static InputStream open(String directory) throws IOException {
        if (remote(directory)) {
            Path file = new Path(directory, "_metadata");
            return file.getFileSystem().open(file);
        }
        return Files.newInputStream(java.nio.file.Path.of(directory, "_metadata"));
    }

    private static boolean remote(String directory) {
        return directory.contains("://");
    }

    private void walk() throws Exception {
        for (OperatorState state : metadata.getOperatorStates()) {
            operator = state.getOperatorID().toHexString();
            subtask = -1;
            leaf("coordinator", state.getCoordinatorState(), null);
            for (Map.Entry<Integer, OperatorSubtaskState> entry : new TreeMap<>(state.getSubtaskStates()).entrySet()) {
                subtask = entry.getKey();
                subtask(entry.getValue());
            }
        }
        Json.print(Json.object("summary", true, "version", version, "checkpointId", metadata.getCheckpointId(),
                "operators", metadata.getOperatorStates().size(), "masterStates", metadata.getMasterStates().size(),
                "props", String.valueOf(metadata.getCheckpointProperties()), "leaves", leaves, "files", files,
                "relative", relative, "segments", segments, "inline", inline));
    }

    private void subtask(OperatorSubtaskState state) throws Exception {
        for (OperatorStateHandle handle : state.getManagedOperatorState()) {
            operatorState("op-managed", handle);
        }
        for (OperatorStateHandle handle : state.getRawOperatorState()) {
            operatorState("op-raw", handle);
        }
        for (KeyedStateHandle handle : state.getManagedKeyedState()) {
            keyed("keyed", handle);
        }
        for (KeyedStateHandle handle : state.getRawKeyedState()) {
            keyed("keyed-raw", handle);
        }
        for (Object handle : state.getInputChannelState()) {
            channel("chan-in", handle);
        }
        for (Object handle : state.getResultSubpartitionState()) {
            channel("chan-out", handle);
        }
    }

    private void operatorState(String kind, OperatorStateHandle handle) {
        if (handle instanceof FileMergingOperatorStreamStateHandle) {
            FileMergingOperatorStreamStateHandle merged = (FileMergingOperatorStreamStateHandle) handle;
            Map<String, Object> row = row(kind + "/dirs", merged);
            row.put("taskOwnedDir", merged.getTaskOwnedDirHandle().getDirectory().toString());
            row.put("sharedDir", merged.getSharedDirHandle().getDirectory().toString());
            Json.print(row);
        }
        leaf(kind, handle.getDelegateStateHandle(), null);
    }

    private void keyed(String kind, KeyedStateHandle handle) {
        if (handle instanceof ChangelogStateBackendHandle) {
            ((ChangelogStateBackendHandle) handle).getMaterializedStateHandles().forEach(h -> keyed(kind + "/chlg-mat", h));
            ((ChangelogStateBackendHandle) handle).getNonMaterializedStateHandles().forEach(h -> keyed(kind + "/chlg-delta", h));
        } else if (handle instanceof ChangelogStateHandleStreamImpl) {
            for (Tuple2<StreamStateHandle, Long> part : ((ChangelogStateHandleStreamImpl) handle).getHandlesAndOffsets()) {
                leaf(kind + "/dstl@" + part.f1, part.f0, null);
            }
        } else if (handle instanceof IncrementalRemoteKeyedStateHandle) {
            incremental(kind, (IncrementalRemoteKeyedStateHandle) handle);
        } else if (handle instanceof KeyGroupsStateHandle) {
            leaf(kind + "/" + handle.getClass().getSimpleName(), ((KeyGroupsStateHandle) handle).getDelegateStateHandle(), null);
        } else if (handle instanceof InMemoryChangelogStateHandle) {
            Json.print(row(kind + "/memory", handle));
        } else {
            throw new IllegalStateException("an unknown keyed state handle: " + handle.getClass());
        }
    }

    private void incremental(String kind, IncrementalRemoteKeyedStateHandle handle) {
        leaf(kind + "/incr-meta", handle.getMetaDataStateHandle(), null);
        for (HandleAndLocalPath part : handle.getSharedState()) {
            leaf(kind + "/incr-shared", part.getHandle(), part.getLocalPath());
        }
        for (HandleAndLocalPath part : handle.getPrivateState()) {
            leaf(kind + "/incr-private", part.getHandle(), part.getLocalPath());
        }
    }

    /** 2.3 has merged channel handles that 1.20 lacks, of no common type: both have this method. */
    private void channel(String kind, Object handle) throws ReflectiveOperationException {
        Object delegate = handle.getClass().getMethod("getDelegate").invoke(handle);
        leaf(kind + "/" + handle.getClass().getSimpleName(), (StreamStateHandle) delegate, null);
    }

    private void leaf(String kind, StreamStateHandle handle, String local) {
        if (handle == null) {
            return;
        }
        leaves++;
        Map<String, Object> row = row(kind, handle);
        describe(row, handle);
        row.put("size", handle.getStateSize());
        if (local != null) {
            row.put("local", local);
        }
        Json.print(row);
    }

    private void describe(Map<String, Object> row, StreamStateHandle handle) {
        if (handle instanceof EmptySegmentFileStateHandle) {
            row.put("type", 16);
        } else if (handle instanceof SegmentFileStateHandle) {
            segments++;
            SegmentFileStateHandle segment = (SegmentFileStateHandle) handle;
            row.put("type", 15);
            row.put("path", segment.getFilePath().toString());
            row.put("startPos", segment.getStartPos());
            row.put("scope", segment.getScope().name());
            row.put("logicalId", segment.getLogicalFileId().getKeyString());
        } else if (handle instanceof RelativeFileStateHandle) {
            relative++;
            row.put("type", 6);
            row.put("relative", ((RelativeFileStateHandle) handle).getRelativePath());
            row.put("path", ((FileStateHandle) handle).getFilePath().toString().replace(pointer, base));
        } else if (handle instanceof FileStateHandle) {
            files++;
            row.put("type", 2);
            row.put("path", ((FileStateHandle) handle).getFilePath().toString());
        } else if (handle instanceof ByteStreamStateHandle) {
            inline++;
            row.put("type", 1);
            row.put("inline", ((ByteStreamStateHandle) handle).getData().length);
            row.put("name", ((ByteStreamStateHandle) handle).getHandleName());
        } else {
            throw new IllegalStateException("an unknown stream state handle: " + handle.getClass());
        }
    }

    private Map<String, Object> row(String kind, Object handle) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("op", operator);
        row.put("subtask", subtask);
        row.put("kind", kind);
        row.put("class", handle.getClass().getSimpleName());
        return row;
    }
}
