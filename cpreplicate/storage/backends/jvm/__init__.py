"""HDFS through Apache Hadoop's own client, in a JVM."""
