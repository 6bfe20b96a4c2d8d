"""Positions in Kafka: what a checkpoint holds, where a job can go on, and derived checkpoints."""
