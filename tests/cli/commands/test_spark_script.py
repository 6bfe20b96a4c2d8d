"""The file that spark-submit runs has a command that prints its path."""

import subprocess
import sys
from pathlib import Path


def test_the_printed_file_is_a_program_that_runs_commands():
    """Its folder, which Python searches first, hides no package."""
    command = [sys.executable, "-m", "cpreplicate", "spark-script"]
    path = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip())
    assert path.suffix == ".py"
    assert {file.name for file in path.parent.iterdir()} <= {
        "__init__.py",
        "__pycache__",
        path.name,
    }
    done = subprocess.run(
        [sys.executable, path, "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("cpreplicate ")


def test_what_binds_it_to_spark_submit_loads_no_column_library():
    """The script imports it, also for a command that needs none."""
    module = "cpreplicate.operations.jobs.workers.parent"
    code = f"import sys, {module}; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
