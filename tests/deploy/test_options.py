"""The command lines of `deploy/` have only options that cpreplicate has."""

import re
from pathlib import Path

import pytest

from cpreplicate.cli.commands import cli

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
    for name, *words in lines:
        parameters = cli.commands[name].params
        known = {option for parameter in parameters for option in parameter.opts}
        used = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert used - known == set(), f"{file.name}: {name}"
