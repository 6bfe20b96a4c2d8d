import pytest

from tests.support.planted import BUGS, PACKAGE, Bug, Edit, SiteNotFound, plant, planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_has_its_site(bug):
    changed = planted(bug)
    assert changed
    assert all(text != (PACKAGE / path).read_text() for path, text in changed.items())


def test_there_are_thirty_planted_bugs_with_names_of_their_own():
    assert len({bug.name for bug in BUGS}) == len(BUGS) == 30


@pytest.mark.parametrize(
    ("module", "function", "old"),
    [
        ("protocol.nowhere", "foreign", "state.links"),
        ("protocol.ownership", "nothing", "state.links"),
        ("protocol.ownership", "foreign.inner", "state.links"),
        ("protocol.ownership", "foreign", "is not there"),
        ("protocol.ownership", "foreign", "state"),
    ],
    ids=["module", "function", "method", "text", "several times"],
)
def test_code_that_moved_is_reported(module, function, old):
    with pytest.raises(SiteNotFound):
        planted(Bug("a bug", "a rule", (Edit(module, function, old, ""),)))


def test_a_bug_is_planted_in_a_copy_only(tmp_path):
    plant(BUGS[0], tmp_path)
    [(path, text)] = planted(BUGS[0]).items()
    assert (tmp_path / "cpreplicate" / path).read_text() == text
    assert (PACKAGE / path).read_text() != text
