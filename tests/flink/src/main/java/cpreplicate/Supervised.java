package cpreplicate;

import java.io.IOException;
import java.util.Arrays;

/** Runs the program of another class, one of Flink's own, which ends at once when stdin closes. */
public final class Supervised {
    private Supervised() {}

    public static void main(String[] words) throws Exception {
        Thread watch = new Thread(Supervised::haltWhenStdinCloses, "stdin");
        watch.setDaemon(true);
        watch.start();
        String[] others = Arrays.copyOfRange(words, 1, words.length);
        Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) others);
    }

    private static void haltWhenStdinCloses() {
        try {
            while (System.in.read() >= 0) {
                // what is written there means nothing
            }
        } catch (IOException e) {
            // it is closed
        }
        Runtime.getRuntime().halt(0);
    }
}
