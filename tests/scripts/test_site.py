"""The site: its generated pages have all that the code has, and its links are checked."""

import re
from pathlib import Path

import click
import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.output import metrics
from scripts.site import charts, check, markdown, pages

ROOT = Path(__file__).parent.parent.parent
GENERATED = pages.generated()


def commands(group, before=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield "-".join((*before, name)), command


@pytest.mark.parametrize(("name", "command"), [*commands(cli)])
def test_each_command_has_a_page_with_each_option_and_exit_code(name, command):
    page = GENERATED[f"reference/commands/{name}.md"]
    assert all(
        option in page for each in command.params for option in each.opts if option[:2] == "--"
    )
    assert all(f"| {code} | " in page for code in command.exit_codes)
    assert all(example in page for example in command.examples)
    assert f"({name}.md)" in GENERATED["reference/commands/README.md"]


def test_each_metric_is_on_the_page_of_metrics():
    described = [each for each in vars(metrics).values() if isinstance(each, metrics.Described)]
    every = {each.name for each in metrics.FAMILIES}
    every |= {each.name for each in (*metrics.LOAD_GAUGES, *metrics.HOUSEKEEPING, *described)}
    assert every == set(re.findall(r"^\| `(\w+)`", GENERATED["reference/metrics.md"], re.MULTILINE))


def test_each_schema_is_on_the_page_of_schemas():
    names = {path.name for path in (ROOT / "docs" / "schemas").glob("*.json")}
    assert names == set(re.findall(r"\(\.\./schemas/(.*?)\)", GENERATED["reference/schemas.md"]))


def test_a_text_stays_as_it_is_in_a_table():
    assert pages.escaped("a|b <c> `d|e_f` g_h\n i") == "a\\|b \\<c\\> `d\\|e_f` g\\_h i"


def test_the_pictures_of_performance_are_those_of_its_tables():
    """`python -m scripts.site.charts` writes them again."""
    page = (ROOT / "docs" / "performance.md").read_text()
    drawn = charts.charts(page)
    assert len(drawn) == page.count("](images/performance-") >= 7
    assert {path: (ROOT / "docs" / path).read_text() for path in drawn} == drawn


def test_each_number_of_performance_was_measured():
    """A picture is of what a page of the lab has."""
    page = (ROOT / "docs" / "performance.md").read_text()
    lab = "".join(path.read_text() for path in (ROOT / "docs" / "lab").glob("*.md"))
    tables = (charts.table_of(rows) for rows, _, _ in charts.FOUND.findall(page))
    numbers = {cell for table in tables for _, cells in table.rows for cell in cells if cell}
    written = set(re.findall(r"\d+(?:\.\d+)?", lab))
    assert {f"{number:g}" for number in numbers} <= {f"{float(text):g}" for text in written}


def test_each_page_has_a_place_in_the_navigation():
    """A new page fails here, and not only when the site is built."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    of_folders = ("adr/", "lab/", "reference/commands/")
    docs = ROOT / "docs"
    found = [*GENERATED, *(str(path.relative_to(docs)) for path in docs.rglob("*.md"))]
    assert [
        each for each in found if not each.startswith(of_folders) and each not in navigation
    ] == []


def test_what_lies_in_a_list_is_indented_as_the_site_needs_it():
    page = "1. One:\n\n       code\n\n   more\n   - two\n     goes on\n\nText\n- three\n  lazy"
    adapted = (
        "1. One:\n\n        code\n\n    more\n    - two\n        goes on\n\nText\n- three\n    lazy"
    )
    assert markdown.reindented(page) == adapted


def test_code_outside_of_lists_stays_as_it_is():
    page = "Text\n\n    - code\n      more\n\n```\n- fenced\n  more\n```"
    assert markdown.reindented(page) == page


def test_a_pipe_in_the_code_of_a_cell_is_shown_as_one():
    assert markdown.unescaped_pipes("| `a\\|b` | c\\|d |\n`e\\|f`") == "| `a|b` | c\\|d |\n`e\\|f`"


def test_links_and_loads_of_a_built_site_are_checked(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="b.html#there">1</a><a href="b.html#gone">2</a>'
        '<a href="c.html">3</a><a href="https://elsewhere/">4</a></h1>'
    )
    (tmp_path / "b.html").write_text(
        '<h1 id="there"></h1><script src="https://elsewhere/x.js"></script>'
        '<link rel="preconnect stylesheet" href="//elsewhere/y.css"><img src="z.png">'
    )
    (tmp_path / "s.css").write_text("@import url(https://elsewhere/)")
    assert list(check.problems(tmp_path)) == [
        "a.html: b.html#gone leads to no anchor",
        "a.html: c.html leads to no file",
        "b.html loads https://elsewhere/x.js",
        "b.html loads //elsewhere/y.css",
        "b.html: z.png leads to no file",
        "s.css loads from elsewhere",
    ]
