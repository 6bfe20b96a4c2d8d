import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler;

/**
 * A real YARN on loopback, a ResourceManager and a NodeManager in one process: {@code MiniYarn DIRECTORY [key=value]...}
 *
 * <p>Not Hadoop's MiniYARNCluster, which needs JUnit. Prints "ready" when the configuration of a client is in {@code
 * DIRECTORY/conf} and the NodeManager has registered. Ends at once when stdin closes; containers end with their driver.
 */
public final class MiniYarn {
    private static final String[] ADDRESSES = {
        YarnConfiguration.RM_ADDRESS, YarnConfiguration.RM_SCHEDULER_ADDRESS, YarnConfiguration.RM_ADMIN_ADDRESS,
        YarnConfiguration.RM_RESOURCE_TRACKER_ADDRESS, YarnConfiguration.RM_WEBAPP_ADDRESS, YarnConfiguration.NM_ADDRESS,
        YarnConfiguration.NM_LOCALIZER_ADDRESS, YarnConfiguration.NM_WEBAPP_ADDRESS,
    };

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        try {
            serve(arguments, answers);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1); // Hadoop's threads would go on
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(String[] arguments, PrintStream answers) throws Exception {
        File directory = new File(arguments[0]);
        Configuration conf = conf(directory, arguments);
        ResourceManager manager = new ResourceManager();
        manager.init(conf);
        manager.start();
        NodeManager node = new NodeManager();
        node.init(new YarnConfiguration(manager.getConfig())); // with the ports that it has now
        node.start();
        for (int tries = 600; manager.getResourceScheduler().getNumClusterNodes() == 0; tries--) {
            if (tries == 0) {
                throw new IllegalStateException("the NodeManager did not register");
            }
            Thread.sleep(100);
        }
        write(manager.getConfig(), new File(directory, "conf"));
        answers.println("ready");
        System.in.transferTo(OutputStream.nullOutputStream());
    }

    private static Configuration conf(File directory, String[] arguments) {
        Configuration conf = new YarnConfiguration();
        conf.set(YarnConfiguration.RM_HOSTNAME, "127.0.0.1");
        conf.set(YarnConfiguration.NM_BIND_HOST, "127.0.0.1");
        conf.set(YarnConfiguration.RM_SCHEDULER, FifoScheduler.class.getName()); // needs no queues
        for (String name : ADDRESSES) {
            conf.set(name, "127.0.0.1:0");
        }
        conf.set(YarnConfiguration.NM_LOCAL_DIRS, directory + "/local");
        conf.set(YarnConfiguration.NM_LOG_DIRS, directory + "/logs");
        for (int i = 1; i < arguments.length; i++) {
            conf.set(arguments[i].split("=", 2)[0], arguments[i].split("=", 2)[1]);
        }
        return conf;
    }

    /** What differs from Hadoop's defaults. */
    private static void write(Configuration conf, File directory) throws Exception {
        directory.mkdirs();
        Configuration own = new Configuration(false);
        conf.forEach(entry -> {
            String[] sources = conf.getPropertySources(entry.getKey());
            if (sources == null || !sources[sources.length - 1].endsWith("-default.xml")) {
                own.set(entry.getKey(), conf.getRaw(entry.getKey()));
            }
        });
        try (OutputStream out = new FileOutputStream(new File(directory, "yarn-site.xml"))) {
            own.writeXml(out);
        }
    }
}
