"""What a running Flink reports of its jobs."""

from cpreplicate.flink.rest import CompletedCheckpoint, FlinkRest, Overview, RunningJob

__all__ = ["CompletedCheckpoint", "FlinkRest", "Overview", "RunningJob"]
