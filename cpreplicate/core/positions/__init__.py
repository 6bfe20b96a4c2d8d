"""What a checkpoint holds of positions in sources and of pending transactions of sinks.

Pure: bytes of operator states in, positions out. `kafka` decodes those of Flink's Kafka connector.
Decoders of other connectors are found by the entry point `cpreplicate.positions`.
"""
