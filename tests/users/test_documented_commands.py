"""The commands that pages, deployment files and messages show are ones that cpreplicate has."""

import re
from pathlib import Path

import click
import pytest

from cpreplicate.cli.commands.replication import cli
from tests.support import documented
from tests.support.raised import all_texts, texts_of

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SUFFIXES = (".service", ".crontab", ".yaml", ".py", ".conf", "")  # not .yml: text of alerts
SHIPPED = [
    path
    for path in sorted((ROOT / "deploy").rglob("*"))
    if path.is_file() and path.suffix in SUFFIXES
]
SOURCES = sorted((ROOT / "cpreplicate").rglob("*.py"))
# options of other programs that a page names: of docker, scripts, node_exporter, kinit
OF_OTHERS = {
    "docs/deployment.md": {"--build-arg", "--collector"},
    "docs/drill.md": {"--flink-version", "--only"},
    "docs/kerberos.md": {"--files", "--keytab", "--principal"},
    "docs/monitoring.md": {"--collector"},
    "docs/lab/executors.md": {"--parts"},
    "docs/lab/hdfs.md": {"--trees"},
    "docs/lab/turns.md": {"--order"},
}
# options of Java, of py4j's gateway, and of programs that a message names
NOT_OURS = {"--add-opens", "--die-on-broken-pipe", "--enable-auth", "--type"} | {
    "--bootstrap-server",
    "--transactional-id",
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![…\w])")


def name(path):
    return str(path.relative_to(ROOT))


def wrong(commands, is_whole):
    """Return the commands with mistakes, and what these are."""
    checked = ((" ".join(words), documented.mistakes(words, is_whole)) for words in commands)
    return {words: problems for words, problems in checked if problems}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_command_of_a_page_is_parsed(page):
    text = page.read_text()
    assert wrong(documented.commands_in_blocks(text), is_whole=True) == {}
    assert wrong(documented.inline_commands(text), is_whole=False) == {}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_command_of_a_page_has_a_placeholder_that_a_shell_takes_for_a_redirection(page):
    commands = documented.commands_in_blocks(page.read_text())
    assert [word for words in commands for word in words if re.search(r"<[\w -]+>", word)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_option_that_a_page_names_exists(page):
    named = documented.inline_options(page.read_text())
    assert named - documented.every_option() <= OF_OTHERS.get(name(page), set())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_value_of_an_option_that_a_page_names_is_one(page):
    options = documented.inline_values(page.read_text())
    found = {" ".join(words): documented.value_mistakes(words) for words in options}
    assert {words: problems for words, problems in found.items() if problems} == {}


@pytest.mark.parametrize("page", ["operations", "failback"])
def test_each_message_that_stands_beside_an_exit_code_is_one(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    lines = re.findall(r"(?:\| |exit )\d+,? \(?((?:\"[^\"]+\"(?:,\s| or )?)+)", text)
    quoted = [quote for line in lines for quote in re.findall(r'"([^"]+)"', line)]
    assert len(quoted) >= 5
    messages = list(all_texts())
    unknown = [
        quote for quote in quoted if not any(documented.is_part(quote, each) for each in messages)
    ]
    assert unknown == []


def test_the_pages_have_many_commands():
    """Else the tests above would pass for pages that are not understood."""
    pages = [page.read_text() for page in PAGES]
    assert sum(len(list(documented.commands_in_blocks(page))) for page in pages) > 30
    assert sum(len(list(documented.inline_commands(page))) for page in pages) > 80


@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_each_command_in_a_line_of_a_shipped_file_is_parsed(file):
    text = file.read_text().replace("\\\n", " ")
    lines = [line.lstrip("# ") for line in text.splitlines()]
    commands = [words for line in lines for words in documented.commands_in_line(line)]
    assert wrong(commands, is_whole=False) == {}


def commands_of(group):
    """Yield every command, those of groups included."""
    for command in group.commands.values():
        yield from commands_of(command) if isinstance(command, click.Group) else [command]


@pytest.mark.parametrize("command", [*commands_of(cli)], ids=lambda command: command.name)
def test_each_example_in_the_help_is_parsed(command):
    commands = [list(documented.commands_in_line(example)) for example in command.examples]
    assert all(commands)
    assert wrong([words for found in commands for words in found], is_whole=True) == {}


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_each_command_and_option_that_a_message_or_a_help_text_names_exists(source):
    texts = list(texts_of(source))
    assert wrong((w for text in texts for w in documented.inline_commands(text)), False) == {}
    named = {option for text in texts for option in OPTION.findall(text)}
    assert named - documented.every_option() <= NOT_OURS


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("sync A B --keap 2", "No such option"),
        ("sync A", "no target_root"),
        ("sync A B C", "unexpected 'C'"),
        ("sync A B --paths relativ", "is not one of"),
        ("sync A B --keep 0", "expected a whole number, 1 or more"),
        ("watch A B --interval soon", "expected a time"),
        ("watch A B --shard 3/2", "expected NUMBER/COUNT"),
        ("sweep A --max-delete many", "expected a number"),
        ("replicate A B", "no command"),
    ],
)
def test_a_mistake_in_a_command_is_found(command, problem):
    assert problem in str(documented.mistakes(command.split()))


@pytest.mark.parametrize(
    "command",
    [
        "sync … --master yarn",
        "sync SOURCE TARGET_ROOT --keep N",
        "--config FILE sync $SOURCE hdfs://dcB/<root>",
        "sync --help",
        "watch --interval 5s --jobs-under hdfs://a/b hdfs://c/d",
    ],
)
def test_placeholders_are_no_mistakes(command):
    assert documented.mistakes(command.split()) == []
