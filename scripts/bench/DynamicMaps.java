import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.tools.mapred.lib.DynamicInputFormat;

/** DistCp's dynamic strategy with {@code many.maps} maps: the runner of local jobs sets their number to one. */
public final class DynamicMaps<K, V> extends DynamicInputFormat<K, V> {
    @Override
    public List<InputSplit> getSplits(JobContext context) throws IOException, InterruptedException {
        context.getConfiguration().setInt(JobContext.NUM_MAPS, context.getConfiguration().getInt("many.maps", 1));
        return super.getSplits(context);
    }

    /** The local disk, where local jobs have their files: maps that rename one chunk must lose as they do on HDFS, quietly. */
    public static final class Staging extends LocalFileSystem {
        @Override
        public boolean rename(Path source, Path target) throws IOException {
            try {
                return super.rename(source, target);
            } catch (FileNotFoundException lost) {
                return false;
            }
        }
    }
}
