package cpreplicate;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/** One JSON object a line on stdout. */
final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {}

    static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    static synchronized void print(Map<String, Object> row) {
        try {
            System.out.println(MAPPER.writeValueAsString(row));
            System.out.flush();
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
    }

    static void event(String event, Object... namesAndValues) {
        Map<String, Object> row = object("event", event, "time", System.currentTimeMillis());
        row.putAll(object(namesAndValues));
        print(row);
    }
}
