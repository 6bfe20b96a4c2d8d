"""The commands of the files in `deploy/`, run as cron, systemd and Kubernetes run them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_PROGRAM = "/opt/cpreplicate/bin/cpreplicate"
_ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")
_VARIABLE = re.compile(r"\$\{([A-Z_]+)\}")


def programs(directory: Path) -> Path:
    """Make a directory for the PATH, with `cpreplicate` and the wrapper for cron."""
    directory.mkdir()
    program = directory / "cpreplicate"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cpreplicate "$@"\n')
    program.chmod(0o755)
    wrapper = directory / "cpreplicate-cron"
    wrapper.write_text((DEPLOY / "cron" / "cpreplicate-cron").read_text())
    wrapper.chmod(0o755)
    return directory


def cron_commands(values: Mapping[str, str]) -> list[tuple[list[str], dict[str, str]]]:
    """Return the words and the environment of each line of the crontab.

    `values` are set in place of those that the crontab assigns; PATH is put in front of its own.
    """
    lines = (DEPLOY / "cron" / "cpreplicate.crontab").read_text().splitlines()
    matches = map(_ASSIGNMENT.fullmatch, lines)
    assigned = {match[1]: match[2] for match in matches if match}
    assert values.keys() <= assigned.keys(), "the crontab has other variables"
    path = f"{values['PATH']}:{assigned['PATH']}"
    environment = {**assigned, **values, "PATH": path}
    commands = [
        line.split(maxsplit=6)[6]
        for line in lines
        if line and not line.startswith("#") and not _ASSIGNMENT.fullmatch(line)
    ]
    return [([assigned["SHELL"], "-c", command], environment) for command in commands]


def unit_command(
    name: str, instance: str, state: Path, given: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of a unit's ExecStart, expanded as systemd expands them.

    `given` is what the files of `EnvironmentFile=` set. `%S` is `state`.
    """
    text = (DEPLOY / "systemd" / name).read_text().replace("\\\n", " ")
    specifiers = {"%i": instance, "%S": str(state), "%C": str(state / "cache")}
    for specifier, value in specifiers.items():
        text = text.replace(specifier, value)
    [assignments] = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
    environment = dict(word.split("=", 1) for word in assignments.split())
    environment.update(given)
    [line] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = [
        _VARIABLE.sub(lambda match: environment.get(match[1], ""), word)
        for word in shlex.split(line)
    ]
    first = words.index(_PROGRAM)
    program = [sys.executable, "-m", "cpreplicate"]
    return [*words[:first], *program, *words[first + 1 :]], {**os.environ, **environment}


def unit_reload(name: str, process: int) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of a unit's ExecReload, for that main process."""
    text = (DEPLOY / "systemd" / name).read_text().replace("\\\n", " ")
    [line] = re.findall(r"^ExecReload=(.*)$", text, re.MULTILINE)
    words = [word.replace("$$", "$") for word in shlex.split(line)]
    return words, {**os.environ, "MAINPID": str(process)}


def cronjob_command() -> list[str]:
    """Return the words of the CronJob; `make deploy-check` compares it with that of the chart."""
    directory = DEPLOY / "kubernetes"
    manifest: Any = yaml.safe_load((directory / "cronjob.yaml").read_text())
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return [sys.executable, "-m", "cpreplicate", *container["args"]]
