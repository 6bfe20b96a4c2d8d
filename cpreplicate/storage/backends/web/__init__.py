"""HDFS through its REST protocol."""
