"""What the clients of HDFS have in common."""
