"""cpreplicate replicates Apache Flink checkpoints between data centres."""

__version__ = "0.1.0"
