"""cpreplicate replicates Apache Flink checkpoints between data centres."""

__version__ = "0.2.0"
