"""What click makes of a missing value differs between its versions: the tests of that are run with
the lowest that pyproject.toml allows and the newest that pip finds, which it installs here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
TESTS = ("tests/cli/test_missing_values.py", "tests/cli/running/test_environment.py")
LONGEST = 1200  # seconds of all these tests, on a busy machine
[LOWEST] = re.findall(r'"click>=([\d.]+)",\n    "fsspec', (PROJECT / "pyproject.toml").read_text())


@pytest.mark.rest
@pytest.mark.timeout(LONGEST + 300)
@pytest.mark.parametrize("version", [f"click=={LOWEST}", "click"], ids=["lowest", "newest"])
def test_no_option_goes_without_its_value_with_this_click(version, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--target", tmp_path, version], check=True)
    shown = (
        "import click, importlib.metadata as found; print(click.__file__, found.version('click'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    click = subprocess.run(
        [sys.executable, "-c", shown], env=environment, capture_output=True, text=True, check=True
    )
    assert click.stdout.startswith(str(tmp_path))
    assert LOWEST in click.stdout or version == "click"
    pytest_of_it = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(
        pytest_of_it, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=LONGEST
    )
    assert done.returncode == 0, done.stdout[-3000:]
