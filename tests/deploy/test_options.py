"""The command lines of `deploy/` have only options that cpreplicate has."""

import re
from pathlib import Path

import pytest

from tests.support import documented

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = [
    *sorted((DEPLOY / "systemd").glob("*.service")),
    DEPLOY / "cron" / "cpreplicate.crontab",
    DEPLOY / "kubernetes" / "deployment.yaml",
    DEPLOY / "kubernetes" / "cronjob.yaml",
    DEPLOY / "helm" / "cpreplicate" / "templates" / "deployment.yaml",
    DEPLOY / "helm" / "cpreplicate" / "templates" / "cronjob.yaml",
]
YAML_ARGS = re.compile(r"^( *)args:\n((?:\1 .*\n)+)", re.MULTILINE)


def command_lines(file):
    """Return the words of each command line in a file, from the name of the command on."""
    text = file.read_text().replace("\\\n", " ")
    if file.suffix == ".yaml":
        return [
            re.findall(r"^ *- (.+)$", args, re.MULTILINE) for _, args in YAML_ARGS.findall(text)
        ]
    return [
        line.split()[1:]
        for line in re.findall(r"(?:bin/cpreplicate|cpreplicate-cron) .*", text)
        if not line.startswith("#")
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_each_option_exists(file):
    lines = command_lines(file)
    assert lines
    # a unit has further words in variables
    assert [documented.mistakes(words, is_whole=False) for words in lines] == [[]] * len(lines)
