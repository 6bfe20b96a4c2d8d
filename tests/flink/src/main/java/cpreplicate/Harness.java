package cpreplicate;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.plugin.PluginUtils;

/**
 * `run --option value …` runs one job; `refs DIRECTORY` dumps a checkpoint; `serve` takes such commands from stdin, one a
 * line with its words separated by tabs, and ends each with an `end` event. When stdin closes, the process ends at once.
 */
public final class Harness {
    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

    private Harness() {}

    public static void main(String[] words) throws Exception {
        // as Flink's processes do; only so are HADOOP_CONF_DIR, FLINK_CONF_DIR and FLINK_PLUGINS_DIR read
        Configuration configuration = GlobalConfiguration.loadConfiguration();
        FileSystem.initialize(configuration, PluginUtils.createPluginManagerFromRootFolder(configuration));
        Harness harness = new Harness();
        if (words.length == 1 && words[0].equals("serve")) {
            harness.listen();
            harness.serve();
        } else {
            if (Arrays.asList(words).contains("--keep-running")) {
                harness.listen();
            }
            Runtime.getRuntime().halt(harness.command(words) ? 0 : 1);
        }
    }

    private void listen() {
        Thread thread = new Thread(this::read, "stdin");
        thread.setDaemon(true);
        thread.start();
    }

    private void read() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                lines.add(line);
            }
        } catch (IOException e) {
            System.err.println(e);
        }
        Runtime.getRuntime().halt(3); // nobody is there to stop us any more
    }

    private void serve() throws InterruptedException {
        while (true) {
            boolean good = false;
            try {
                good = command(lines.take().split("\t"));
            } catch (Exception e) {
                Json.event("failed", "exact", false, "why", e.toString());
            }
            Json.event("end", "exit", good ? 0 : 1);
        }
    }

    private boolean command(String[] words) throws Exception {
        switch (words[0]) {
            case "run":
                return new Run(new Options(words, 1), lines).execute();
            case "refs":
                Refs.dump(words[1], words.length > 2 ? words[2] : null);
                return true;
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }
}
