import java.nio.ByteBuffer;
import org.apache.hadoop.yarn.server.api.ApplicationInitializationContext;
import org.apache.hadoop.yarn.server.api.ApplicationTerminationContext;
import org.apache.hadoop.yarn.server.api.AuxiliaryService;

/**
 * The service {@code mapreduce_shuffle} of a NodeManager, which MapReduce's containers ask for even without reducers, as
 * those of DistCp are. Hadoop's own, the ShuffleHandler, does not run beside the shaded servers of tests/hdfs.
 */
public final class NoShuffle extends AuxiliaryService {
    public NoShuffle() {
        super("mapreduce_shuffle");
    }

    @Override
    public void initializeApplication(ApplicationInitializationContext context) {}

    @Override
    public void stopApplication(ApplicationTerminationContext context) {}

    /** The port of the service, four bytes. */
    @Override
    public ByteBuffer getMetaData() {
        return ByteBuffer.allocate(Integer.BYTES);
    }
}
