import static org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction.SAFEMODE_ENTER;
import static org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction.SAFEMODE_LEAVE;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.key.KeyProvider;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocols;
import org.apache.hadoop.security.SecurityUtil;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ExitUtil;

/**
 * A real HDFS on loopback, in one process:
 * {@code MiniCluster --dir D --ports P,... [--datanodes N] [--ha NAMESERVICE] [key=value]...}
 *
 * <p>The ports are those of each NameNode, RPC and HTTP, and then of each DataNode, data, HTTP and IPC. A port that the
 * kernel chose would be free for every connection of the machine while its node is stopped.
 *
 * <p>Prints one JSON line when all of it is up, then answers each command (one line on stdin, words separated by tabs) with
 * one JSON line when it is done: whether that is "ok" or what is the "error", and which NameNode is "active" (-1: none).
 * When stdin closes, it deletes its directory and ends at once, whatever it is doing.
 */
public final class MiniCluster {
    private static final long PATIENCE_MS = 1_200_000;

    private final MiniDFSCluster cluster;
    private final boolean ha;
    private final List<DatanodeID> nodes = new ArrayList<>();
    private final Map<Integer, DataNodeProperties> stopped = new HashMap<>();
    private final Set<Integer> stoppedNameNodes = new HashSet<>();
    private final Map<Path, FSDataOutputStream> open = new HashMap<>();
    private int active; // -1: none

    private MiniCluster(MiniDFSCluster cluster, boolean ha) {
        this.cluster = cluster;
        this.ha = ha;
        for (DataNode node : cluster.getDataNodes()) {
            nodes.add(node.getDatanodeId());
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ExitUtil.disableSystemExit(); // a NameNode that fails is an answer to a command, not the end of the process
        Options options = new Options(arguments);
        BlockingQueue<String> commands = readCommands(options.directory);
        try {
            serve(options, commands, answers);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1); // Hadoop's threads would go on
        }
        end(options.directory);
    }

    private static void serve(Options options, BlockingQueue<String> commands, PrintStream answers) throws Exception {
        ObjectMapper json = new ObjectMapper();
        MiniCluster mini = start(options);
        answers.println(json.writeValueAsString(mini.ready(options)));
        for (String line = commands.take(); !line.equals("quit"); line = commands.take()) {
            answers.println(json.writeValueAsString(mini.answer(line.split("\t"))));
        }
    }

    private static final class Options {
        File directory;
        int dataNodes = 1;
        Iterator<Integer> ports;
        String nameservice; // null: not HA
        final Configuration conf = new HdfsConfiguration();

        Options(String[] words) {
            for (int i = 0; i < words.length; i++) {
                switch (words[i]) {
                    case "--dir" -> directory = new File(words[++i]);
                    case "--ports" -> ports = Arrays.stream(words[++i].split(",")).map(Integer::valueOf).iterator();
                    case "--datanodes" -> dataNodes = Integer.parseInt(words[++i]);
                    case "--ha" -> nameservice = words[++i];
                    default -> conf.set(words[i].split("=", 2)[0], words[i].split("=", 2)[1]);
                }
            }
        }
    }

    /** The lines of stdin; its end ends the process even while a command hangs. */
    private static BlockingQueue<String> readCommands(File directory) {
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Thread reader = new Thread(() -> {
            try {
                for (String line = input.readLine(); line != null; line = input.readLine()) {
                    commands.add(line);
                }
            } catch (IOException gone) {
                System.err.println("stdin: " + gone);
            }
            end(directory);
        }, "commands");
        reader.setDaemon(true);
        reader.start();
        return commands;
    }

    private static void end(File directory) {
        FileUtil.fullyDelete(directory);
        Runtime.getRuntime().halt(0);
    }

    private static MiniCluster start(Options options) throws Exception {
        login(options.conf);
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(options.conf, options.directory);
        if (options.nameservice != null) {
            // the DataNodes write by it for WebHDFS
            String provider = "dfs.client.failover.proxy.provider." + options.nameservice;
            options.conf.set(provider, ConfiguredFailoverProxyProvider.class.getName());
        }
        builder.nnTopology(nameNodes(options));
        builder.numDataNodes(options.dataNodes).checkDataNodeAddrConfig(true).dataNodeConfOverlays(dataNodes(options));
        MiniCluster mini = new MiniCluster(builder.build(), options.nameservice != null);
        if (mini.ha) {
            mini.cluster.transitionToActive(0);
        }
        mini.cluster.waitActive();
        return mini;
    }

    private static MiniDFSNNTopology nameNodes(Options options) {
        MiniDFSNNTopology.NSConf service = new MiniDFSNNTopology.NSConf(options.nameservice);
        for (String name : options.nameservice == null ? new String[] {null} : new String[] {"nn0", "nn1"}) {
            MiniDFSNNTopology.NNConf node = new MiniDFSNNTopology.NNConf(name);
            service.addNN(node.setIpcPort(options.ports.next()).setHttpPort(options.ports.next()));
        }
        return new MiniDFSNNTopology().addNameservice(service);
    }

    private static Configuration[] dataNodes(Options options) {
        Configuration[] overlays = new Configuration[options.dataNodes];
        for (int i = 0; i < overlays.length; i++) {
            overlays[i] = new Configuration(false);
            for (String kind : new String[] {"", ".http", ".ipc"}) {
                overlays[i].set("dfs.datanode" + kind + ".address", "127.0.0.1:" + options.ports.next());
            }
        }
        return overlays;
    }

    /** In a secure cluster the superuser is the NameNode's principal. */
    private static void login(Configuration conf) throws IOException {
        UserGroupInformation.setConfiguration(conf);
        if (UserGroupInformation.isSecurityEnabled()) {
            SecurityUtil.login(conf, "dfs.namenode.keytab.file", "dfs.namenode.kerberos.principal", "localhost");
        }
    }

    private Map<String, Object> ready(Options options) {
        List<String> rpc = new ArrayList<>();
        List<String> http = new ArrayList<>();
        for (int i = 0; i < cluster.getNumNameNodes(); i++) {
            rpc.add("localhost:" + cluster.getNameNode(i).getNameNodeAddress().getPort());
            http.add("localhost:" + cluster.getNameNode(i).getHttpAddress().getPort());
        }
        Map<String, Object> ready = new LinkedHashMap<>();
        ready.put("uri", "hdfs://" + (ha ? options.nameservice : rpc.get(0)));
        ready.put("rpc", rpc);
        ready.put("http", http);
        ready.put("datanodes", nodes.stream().map(DatanodeID::getXferAddr).toList());
        ready.put("nameservice", options.nameservice);
        ready.put("user", System.getenv().getOrDefault("HADOOP_USER_NAME", System.getProperty("user.name")));
        return ready;
    }

    private Map<String, Object> answer(String[] words) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            run(words);
            answer.put("ok", true);
        } catch (Exception failure) {
            failure.printStackTrace();
            answer.put("ok", false);
            answer.put("error", failure.toString());
        }
        answer.put("active", active);
        return answer;
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "stopdn" -> stopDataNode(Integer.parseInt(words[1]), words.length > 2);
            case "startdn" -> startDataNode(Integer.parseInt(words[1]));
            case "failover" -> failover();
            case "stopnn" -> stopNameNode(Integer.parseInt(words[1]));
            case "startnn" -> startNameNode(Integer.parseInt(words[1]));
            case "restartnn" -> {
                stopNameNode(Integer.parseInt(words[1]));
                startNameNode(Integer.parseInt(words[1]));
            }
            case "safemode" -> files().setSafeMode(words[1].equals("on") ? SAFEMODE_ENTER : SAFEMODE_LEAVE, false);
            case "quota" -> files().setQuota(words[1], HdfsConstants.QUOTA_DONT_SET, Long.parseLong(words[2]), null);
            case "chmod" -> files().setPermission(words[1], new FsPermission(Short.parseShort(words[2], 8)));
            case "chown" -> files().setOwner(words[1], words[2], null);
            case "idle" -> waitUntil("no call is being handled", MiniCluster::isIdle);
            case "zone" -> encrypt(new Path(words[1]));
            case "write" -> writeOn(new Path(words[1]), Files.readAllBytes(new File(words[2]).toPath()));
            case "mkdirs" -> files().mkdirs(words[1], FsPermission.getDirDefault(), true);
            default -> throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    /** An encryption zone, with a key of its own. The cluster needs `hadoop.security.key.provider.path`. */
    private void encrypt(Path path) throws Exception {
        KeyProvider keys = cluster.getNamesystem(active).getProvider();
        keys.createKey("key", new KeyProvider.Options(new Configuration()));
        keys.flush();
        cluster.getFileSystem(active).mkdirs(path);
        cluster.getFileSystem(active).createEncryptionZone(path, "key");
    }

    /** What a writer flushes as Flink does, and does not close: the NameNode does not know how long the block is. */
    private void writeOn(Path path, byte[] data) throws IOException {
        if (!open.containsKey(path)) {
            open.put(path, cluster.getFileSystem(active).create(path));
        }
        open.get(path).write(data);
        open.get(path).hsync();
    }

    /** The active NameNode, as the superuser and not by RPC, which would count. */
    private NamenodeProtocols files() throws IOException {
        if (active < 0) {
            throw new IOException("no NameNode is active");
        }
        return cluster.getNameNodeRpc(active);
    }

    /** The node's connections break; the NameNode goes on believing in it, unless it is declared dead. */
    private void stopDataNode(int index, boolean declaredDead) throws Exception {
        DataNodeProperties node = cluster.stopDataNode(nodes.get(index).getXferAddr());
        if (node == null) {
            throw new IllegalStateException("DataNode " + index + " is stopped already");
        }
        stopped.put(index, node);
        if (declaredDead) {
            cluster.setDataNodeDead(nodes.get(index));
        }
    }

    /** Under the same address, with the same blocks. */
    private void startDataNode(int index) throws Exception {
        if (!stopped.containsKey(index)) {
            throw new IllegalStateException("DataNode " + index + " is running");
        }
        cluster.restartDataNode(stopped.remove(index), true);
        DataNode started = cluster.getDataNodes().get(cluster.getDataNodes().size() - 1);
        waitUntil("DataNode " + index + " is registered", started::isDatanodeFullyStarted);
    }

    /** The other NameNode becomes active; the one that was becomes standby, if it still runs. */
    private void failover() throws Exception {
        if (!ha) {
            throw new IllegalStateException("this cluster has one NameNode");
        }
        int next = active >= 0 ? 1 - active : (runs(0) ? 0 : 1);
        if (!runs(next)) {
            throw new IllegalStateException("NameNode " + next + " does not run");
        }
        if (active >= 0) {
            cluster.transitionToStandby(active);
            active = -1;
        }
        cluster.transitionToActive(next);
        active = next;
    }

    private boolean runs(int index) {
        return !stoppedNameNodes.contains(index);
    }

    /** The connections to it break; in an HA pair no other takes over until `failover`. */
    private void stopNameNode(int index) {
        if (!stoppedNameNodes.add(index)) {
            throw new IllegalStateException("NameNode " + index + " is stopped already");
        }
        cluster.shutdownNameNode(index);
        active = active == index ? -1 : active;
    }

    /** Under the same addresses; in an HA pair as standby, unless none is active. Returns out of safe mode. */
    private void startNameNode(int index) throws Exception {
        if (!stoppedNameNodes.remove(index)) {
            throw new IllegalStateException("NameNode " + index + " is running");
        }
        cluster.restartNameNode(index, false);
        if (active < 0) {
            if (ha) {
                cluster.transitionToActive(index);
            }
            active = index;
        }
        waitUntil("NameNode " + index + " has left safe mode", () -> !cluster.getNameNode(index).isInSafeMode());
        cluster.waitActive(index); // it leaves safe mode before all of few blocks are reported
        cluster.waitFirstBRCompleted(index, (int) PATIENCE_MS);
    }

    /** Whether every thread that handles calls waits for one. */
    private static boolean isIdle() {
        return Thread.getAllStackTraces().entrySet().stream()
            .filter(each -> each.getKey().getName().startsWith("IPC Server handler"))
            .allMatch(each -> Arrays.stream(each.getValue()).anyMatch(MiniCluster::isQueue));
    }

    private static boolean isQueue(StackTraceElement frame) {
        return frame.getClassName().equals("org.apache.hadoop.ipc.CallQueueManager");
    }

    private static void waitUntil(String what, Callable<Boolean> done) throws Exception {
        for (long deadline = System.currentTimeMillis() + PATIENCE_MS; !done.call(); Thread.sleep(20)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IOException("not in time: " + what);
            }
        }
    }
}
