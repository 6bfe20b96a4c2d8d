"""What a message advises works."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()

WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from cpreplicate.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "package", "words"),
    [
        ("hdfs_native", "hdfs-native", ()),
        ("py4j.java_gateway", "pyspark", ("--hdfs-client", "hadoop")),
    ],
)
def test_without_a_client_of_hdfs_the_message_names_a_package_that_brings_it(
    module, package, words
):
    command = [sys.executable, "-c", WITHOUT, module, "inspect", "hdfs://dcA/ckpt/chk-1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"`pip install {package}`" in done.stderr
    assert f'"{package}>=' in PROJECT


def test_every_extra_that_is_advised_exists():
    places = [
        *(ROOT / "cpreplicate").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
    ]
    advised = {
        name
        for place in places
        for name in re.findall(r"(?:cpreplicate|'\.)\[(\w+)\]", place.read_text())
    }
    extras = set(
        re.findall(
            r"^(\w+) = \[",
            PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0],
            re.M,
        )
    )
    assert advised <= extras
    assert "s3" in advised
