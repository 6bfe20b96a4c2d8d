package cpreplicate;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionListing;

/** Prints each transaction that a broker knows, as a line of JSON. The argument is the broker. */
public final class Transactions {
    private Transactions() {}

    public static void main(String[] words) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(properties)) {
            List<String> ids = new ArrayList<>();
            for (TransactionListing each : admin.listTransactions().all().get()) {
                ids.add(each.transactionalId());
            }
            admin.describeTransactions(ids).all().get().forEach((id, found) -> System.out.println(
                    "{\"transactional_id\": \"" + id + "\", \"producer_id\": " + found.producerId()
                    + ", \"epoch\": " + found.producerEpoch() + ", \"state\": \"" + found.state() + "\"}"));
        }
    }
}
