"""Man pages made from the commands: each command has one, and the readers of roff accept it."""

import re
import subprocess

import click
import pytest

from cpreplicate.cli.commands.replication import cli
from scripts.wheel import man_pages
from tests.support import parts

pytestmark = [*parts.NIGHTLY]

PAGES = man_pages.pages(0.0)


def names_below(command, name):
    inner = command.commands if isinstance(command, click.Group) else {}
    return [name, *(page for each in inner for page in names_below(inner[each], f"{name}-{each}"))]


def plain(text):
    """A page without the escapes of roff, for what it says."""
    text = re.sub(r"\\f[BIR]", "", text)
    for escape, character in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ga", "`"), (r"\(ha", "^")):
        text = text.replace(escape, character)
    return " ".join(text.split())


def test_each_command_and_each_group_has_a_page():
    assert set(PAGES) == {f"{name}.1" for name in names_below(cli, "cpreplicate")}
    assert "cpreplicate-config-check.1" in PAGES


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_page_has_each_option_argument_and_exit_code(name):
    command = cli.commands[name]
    text = plain(PAGES[f"cpreplicate-{name}.1"])
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert max(parameter.opts, key=len) in text
            assert " ".join((parameter.help or "").split()).replace("…", r"\[u2026]") in text
    for code, meaning in getattr(command, "exit_codes", {}).items():
        assert f".B {code} {meaning}" in text


def test_a_page_has_the_day_of_the_release():
    first = man_pages.pages(1764115200.0)["cpreplicate.1"].splitlines()[0]
    assert first.startswith(".TH CPREPLICATE 1 2025-11-26 ")


@pytest.mark.shells
@pytest.mark.parametrize(
    "words",
    [("mandoc", "-T", "lint", "-W", "warning"), ("groff", "-man", "-T", "utf8", "-ww", "-z")],
    ids=lambda words: words[0],
)
def test_a_reader_of_roff_finds_nothing_to_warn_of(words, tmp_path):
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text)
        done = subprocess.run([*words, tmp_path / name], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), name


@pytest.mark.shells
def test_a_page_shows_the_words_of_the_help(tmp_path):
    path = tmp_path / "page.1"
    path.write_text(PAGES["cpreplicate-completion.1"])
    shown = subprocess.run(
        ["mandoc", "-T", "ascii", "-O", "width=200", path], capture_output=True, text=True
    )
    text = re.sub(".\b", "", shown.stdout)
    assert "completion zsh > ~/.zfunc/_cpreplicate" in text
    assert "cpreplicate completion [OPTIONS] {bash|zsh|fish}" in text
