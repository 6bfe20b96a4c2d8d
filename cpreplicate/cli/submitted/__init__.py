"""The file that spark-submit runs, in a folder of its own."""

from pathlib import Path

SCRIPT = Path(__file__).with_name("run_cpreplicate.py")
