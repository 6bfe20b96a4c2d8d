package cpreplicate.legacy;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaConsumer;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The consumer and the producer that the connector 3.x still has, and the later ones have not. */
public final class Legacy {
    private Legacy() {}

    public static DataStream<String> source(
            StreamExecutionEnvironment environment, List<String> topics, Properties properties) {
        FlinkKafkaConsumer<String> consumer = new FlinkKafkaConsumer<>(topics, new SimpleStringSchema(), properties);
        consumer.setStartFromEarliest();
        return environment.addSource(consumer, "orders source").uid("source");
    }

    public static void sink(DataStream<String> stream, String topic, Properties properties) {
        FlinkKafkaProducer<String> producer = new FlinkKafkaProducer<>(
                topic,
                (record, time) -> new ProducerRecord<>(topic, record.getBytes(StandardCharsets.UTF_8)),
                properties,
                FlinkKafkaProducer.Semantic.EXACTLY_ONCE);
        stream.addSink(producer).uid("sink").name("out");
    }
}
