import java.io.IOException;
import java.util.List;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.tools.mapred.UniformSizeInputFormat;

/** DistCp's default strategy with {@code many.maps} maps: the runner of local jobs sets their number to one. */
public final class ManyMaps extends UniformSizeInputFormat {
    @Override
    public List<InputSplit> getSplits(JobContext context) throws IOException, InterruptedException {
        context.getConfiguration().setInt(JobContext.NUM_MAPS, context.getConfiguration().getInt("many.maps", 1));
        return super.getSplits(context);
    }
}
