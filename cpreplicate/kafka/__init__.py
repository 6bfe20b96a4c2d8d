"""What a Kafka cluster reports: the offsets of its partitions and of its consumer groups.

The only package that imports `confluent_kafka`.
"""
