package cpreplicate;

import java.util.HashMap;
import java.util.Map;

/** `--name value` pairs of one command; a flag's value is "true". */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] words, int from) {
        for (int i = from; i < words.length; i++) {
            if (!words[i].startsWith("--")) {
                throw new IllegalArgumentException("expected an option, found " + words[i]);
            }
            boolean flag = i + 1 == words.length || words[i + 1].startsWith("--");
            values.put(words[i].substring(2), flag ? "true" : words[++i]);
        }
    }

    String get(String name) {
        return values.get(name);
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : otherwise;
    }

    boolean flag(String name) {
        return "true".equals(values.get(name));
    }
}
