"""cpreplicate replicates Apache Flink checkpoints between data centres."""

__version__ = "0.3.0.dev0"
