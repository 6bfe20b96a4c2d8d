package cpreplicate;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The operators of each job. */
final class Pipeline {
    private Pipeline() {}

    static void add(StreamExecutionEnvironment environment, Workload workload) {
        TypeInformation<Tuple3<Integer, Long, byte[]>> records =
                Types.TUPLE(Types.INT, Types.LONG, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
        environment
                .fromSource(new Generator(workload), WatermarkStrategy.noWatermarks(), "generator", records).uid("generator")
                .transform("witness", records, new Witness(workload)).uid("witness")
                .keyBy(record -> workload.key(record.f0, record.f1), Types.INT)
                .transform("counter", Types.INT, new Counter(workload)).uid("counter");
    }
}
