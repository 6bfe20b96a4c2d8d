import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.server.datanode.DataNode;

/**
 * An HDFS that is reached from elsewhere, at the address {@code far.address}: tests/hdfs/MiniCluster.java, which listens on
 * loopback only, without its commands. What stands before the word MiniCluster is of a command line that was meant for it.
 */
public final class FarCluster {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        List<String> words = List.of(arguments);
        words = words.subList(words.indexOf("MiniCluster") + 1, words.size());
        File directory = new File(words.get(words.indexOf("--dir") + 1));
        int nodes = Integer.parseInt(words.get(words.indexOf("--datanodes") + 1));
        Configuration conf = configuration(words);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, directory)
            .numDataNodes(nodes)
            // the names that clients with dfs.client.use.datanode.hostname connect to
            .hosts(Collections.nCopies(nodes, conf.get("far.address")).toArray(String[]::new))
            .checkDataNodeAddrConfig(true)
            .build();
        cluster.waitActive();
        answers.println(new ObjectMapper().writeValueAsString(ready(cluster)));
        while (System.in.read() >= 0) {
            // until it closes
        }
        FileUtil.fullyDelete(directory);
        Runtime.getRuntime().halt(0);
    }

    private static Configuration configuration(List<String> words) {
        Configuration conf = new HdfsConfiguration();
        words.stream().filter(word -> word.contains("=")).map(word -> word.split("=", 2)).forEach(pair -> conf.set(pair[0], pair[1]));
        conf.set("dfs.namenode.rpc-bind-host", "0.0.0.0");
        conf.set("dfs.datanode.address", "0.0.0.0:0");
        conf.set("dfs.datanode.ipc.address", "127.0.0.1:0");
        conf.set("dfs.datanode.http.address", "127.0.0.1:0");
        return conf;
    }

    private static Map<String, Object> ready(MiniDFSCluster cluster) {
        String address = cluster.getConfiguration(0).get("far.address");
        String rpc = address + ":" + cluster.getNameNodePort();
        String http = "localhost:" + cluster.getNameNode().getHttpAddress().getPort();
        List<String> nodes = cluster.getDataNodes().stream().map(DataNode::getXferPort).map(port -> address + ":" + port).toList();
        return Map.of("uri", "hdfs://" + rpc, "rpc", List.of(rpc), "http", List.of(http), "datanodes", nodes);
    }
}
