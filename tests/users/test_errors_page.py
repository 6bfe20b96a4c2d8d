"""docs/errors.md has each message of the package, under the exit code of its error."""

import re
from pathlib import Path

from tests.support.documented import is_part
from tests.support.raised import all_texts, raised

PAGE = (Path(__file__).parent.parent.parent / "docs" / "errors.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
LEAST = 8  # letters of a quote: less fits anything


def codes_of(section):
    return {int(each) for each in re.findall(r"\d+", section.partition("\n")[0].partition(":")[0])}


def quotes_of(section):
    """Return the quotes of the first column of the tables."""
    cells = re.findall(r"^\| (.*?) \| ", section, flags=re.MULTILINE)
    return [quote for cell in cells for quote in re.findall(r'"([^"]+)"', cell)]


def quotes(code):
    return [quote for each in SECTIONS if code in codes_of(each) for quote in quotes_of(each)]


def test_each_message_has_an_entry_under_its_exit_code():
    known = {code: quotes(code) for code in {each.exit_code for each in raised()}}
    missing = [
        f"{each.exit_code}: {each.place}: {each.text}"
        for each in raised()
        if not any(is_part(quote, each.text) for quote in known[each.exit_code])
    ]
    assert missing == []


def test_each_entry_is_a_message_of_the_package():
    texts = "\n".join([*all_texts(), *(each.text for each in raised())])
    quoted = [quote for section in SECTIONS for quote in quotes_of(section)]
    assert [quote for quote in quoted if not is_part(quote, texts)] == []


def test_no_entry_is_so_short_that_it_would_fit_anything():
    assert [q for section in SECTIONS for q in quotes_of(section) if len(q) < LEAST] == []


def test_each_exit_code_has_a_section():
    documented = {code for section in SECTIONS for code in codes_of(section)}
    assert documented >= {1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 20, 21, 22, 23, 129, 130, 143}


def test_messages_are_found_in_all_the_ways_in_which_they_reach_an_error():
    """Else the tests above would pass for messages that are not seen."""
    found = raised()
    assert len(found) > 200
    assert any(each.text.startswith("{} is sealed") for each in found)
    assert any(each.place.startswith("protocol/lease.py") for each in found)
