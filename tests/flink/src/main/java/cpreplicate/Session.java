package cpreplicate;

import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.plugin.PluginUtils;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;

/** A session cluster: it takes jars by its REST API. When stdin closes, the process ends at once. */
public final class Session {
    private static final long PATIENCE_SECONDS = 1000;

    private Session() {}

    public static void main(String[] words) throws Exception {
        Options options = new Options(words, 0);
        Configuration configuration = GlobalConfiguration.loadConfiguration();
        FileSystem.initialize(configuration, PluginUtils.createPluginManagerFromRootFolder(configuration));
        common(configuration);
        configuration.setString("rest.bind-port", options.get("rest-port", "0"));
        configuration.setString("jobmanager.rpc.port", "0");
        configuration.setString("web.submit.enable", options.get("submit", "true"));
        String own = System.getProperty("java.io.tmpdir") + "/session-" + ProcessHandle.current().pid();
        configuration.setString("web.upload.dir", own); // else clusters would share their jars
        configuration.setString("web.refresh-interval", options.get("rest-refresh-ms", "3000"));
        configuration.setString("state.checkpoints.num-retained", options.get("retained", "1")); // of jobs before 1.20
        configuration.setString("rest.address", options.get("address", "localhost"));
        configuration.setString("rest.bind-address", options.get("address", "localhost"));
        if (options.get("savepoints") != null) {
            configuration.setString("state.savepoints.dir", options.get("savepoints"));
        }
        if (options.get("zookeeper") != null) {
            configuration.setString("high-availability.type", "zookeeper");
            configuration.setString("high-availability.zookeeper.quorum", options.get("zookeeper"));
            configuration.setString("high-availability.zookeeper.client.session-timeout", "4000");
            configuration.setString("high-availability.storageDir", options.get("recovery"));
        }
        if (options.get("managed") != null) {
            configuration.setString("taskmanager.memory.managed.size", options.get("managed"));
        }
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(options.number("slots", 2))
                .build());
        cluster.start();
        // with high availability, the address may still be that of a JobManager that was lost
        Json.event("session", "rest", options.get("rest-port") != null
                ? "http://localhost:" + options.get("rest-port")
                : cluster.getRestAddress().get(PATIENCE_SECONDS, TimeUnit.SECONDS).toString());
        while (System.in.read() >= 0) {
            // what is written there means nothing
        }
        Runtime.getRuntime().halt(0);
    }

    /** Little memory, temporary files where they are removed, and time for calls on a busy machine. */
    static void common(Configuration configuration) {
        configuration.setString("io.tmp.dirs", System.getProperty("java.io.tmpdir"));
        configuration.setString("taskmanager.memory.segment-size", "4kb");
        configuration.setString("taskmanager.memory.managed.size", "32mb");
        configuration.setString("taskmanager.memory.network.min", "16mb");
        configuration.setString("taskmanager.memory.network.max", "16mb");
        configuration.setString("pekko.ask.timeout", "10 min"); // 10 s by default
        configuration.setString("akka.ask.timeout", "10 min"); // its name before Flink 1.18
    }
}
