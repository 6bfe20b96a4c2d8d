"""HDFS through hdfs-native, without a JVM."""
