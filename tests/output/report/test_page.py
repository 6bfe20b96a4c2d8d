"""The document: everything is inside it, its policy allows nothing else, and names stay text."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

import cpreplicate
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series
from cpreplicate.output.report.page import html_of

ROOT = Path(cpreplicate.__file__).parents[1]
STATIC = Path(cpreplicate.__file__).parent / "output" / "report" / "static"
LIBRARY = STATIC / "vendor" / "chart.umd.min.js"
LIBRARY_SHA256 = "87364cc2b2a76a6684929e7d6b80b18a897794db38400caff1fcf1791c6925d2"  # npm's 4.6.1
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e"
PAGE = Page(
    title=EVIL,
    answer=EVIL,
    restore=EVIL,
    facts=((EVIL, EVIL),),
    notes=(EVIL,),
    charts=(Chart(EVIL, EVIL, [EVIL], (Series(EVIL, [1]),)),),
    tables=(DataTable(EVIL, Column(EVIL, [EVIL, "other", "third"])),),
)
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def tables_of(text):
    """The tables of a document."""
    packed = re.findall(r'<script type="text/plain">([^<]*)</script>', text)
    return [json.loads(gzip.decompress(base64.b64decode(each))) for each in packed]


def values_of(column):
    """The texts of a column in a document."""
    texts = [None if text is None else column["beginning"] + text for text in column["texts"]]
    return [texts[code] for code in column["codes"]] if "codes" in column else texts


def test_the_policy_allows_the_script_and_the_style_of_the_page_by_hash_and_nothing_else():
    text = html_of(PAGE)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    scripts, styles = SCRIPT.findall(text), re.findall(r"<style>(.*?)</style>", text, re.DOTALL)

    def hashes(parts):
        digests = (hashlib.sha256(part.encode()).digest() for part in parts)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    assert directives == {
        "default-src": "'none'",
        "script-src": hashes(scripts),
        "style-src": hashes(styles),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


def test_no_file_and_no_address_is_loaded():
    text = html_of(Page("title", "answer."))
    assert not re.findall(r"<(?:link|img|iframe|object|embed|base)\b", text)
    assert not re.findall(r"<[^>]*\s(?:src|href)=(?!\"#main\")", SCRIPT.sub("", text))
    assert "sourceMappingURL" not in text
    assert "@import" not in text
    assert "url(" not in (STATIC / "page.css").read_text()


def test_no_element_has_a_style_or_a_handler_of_its_own():
    text = SCRIPT.sub("", html_of(PAGE))
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", text)


def test_names_from_outside_stay_text():
    text = html_of(PAGE)
    assert len(SCRIPT.findall(text)) == 2
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    (table,) = tables_of(text)
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert values_of(table["columns"][0]) == [shown, "other", "third"]


@pytest.mark.parametrize(
    "values",
    [
        ["a/b", "a/c", None, ""],
        ["same"] * 5,
        [None, None],
        [],
        ["a/\U0001f600", "a/\U0001f601", "a/é"],
        ["x", "xy", "xyz"],
    ],
)
def test_texts_of_a_column_are_as_before_when_they_are_unpacked(values):
    page = Page("title", "answer.", tables=(DataTable("t", Column("c", values)),))
    ((column,),) = [table["columns"] for table in tables_of(html_of(page))]
    assert values_of(column) == [value or None for value in values]


def test_the_same_page_is_the_same_file():
    assert html_of(PAGE) == html_of(PAGE)


def test_the_library_is_the_one_that_the_notice_names():
    assert hashlib.sha256(LIBRARY.read_bytes()).hexdigest() == LIBRARY_SHA256
    banner = LIBRARY.read_text()[:200]
    notice = (ROOT / "NOTICE").read_text()
    (version,) = re.findall(r"Chart\.js v([\d.]+)", banner)
    assert f"Chart.js {version} " in notice
    assert "Permission is hereby granted" in html_of(PAGE)


def test_what_the_library_needs_is_not_forbidden():
    text = LIBRARY.read_text()
    assert not re.findall(r"\beval\(|new Function|insertRule|createElement\(.style", text)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_documentation_has_a_screenshot_of_each_theme(theme):
    name = f"images/report-{theme}.png"
    image = (ROOT / "docs" / name).read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) < 150_000
    assert name in (ROOT / "docs" / "reports.md").read_text()
