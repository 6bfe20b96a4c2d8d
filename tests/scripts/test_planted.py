import pytest

from scripts.planted import CONTROL, ENOUGH, Result, kinds_of, reported
from tests.support.planted import BUGS, PACKAGE, Bug, Edit, SiteNotFound, plant, planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_has_its_site(bug):
    changed = planted(bug)
    assert changed
    assert all(text != (PACKAGE / path).read_text() for path, text in changed.items())


def test_the_planted_bugs_have_names_of_their_own():
    assert len({bug.name for bug in BUGS}) == len(BUGS) == 36


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


def results(found, control=None):
    """The results of all bugs, of which so many were found, and of the control."""
    seeds = [7 if number < found else None for number in range(len(BUGS))]
    bugs = [Result(bug, seed, 1.0, "") for bug, seed in zip(BUGS, seeds, strict=True)]
    return [Result(CONTROL, control, 1.0, "what is right"), *bugs]


def test_enough_bugs_must_be_found(capsys):
    assert reported(results(ENOUGH)) == 0
    assert f"{ENOUGH} of 36 bugs were found" in capsys.readouterr().out
    assert reported(results(ENOUGH - 1)) == 1
    assert f"not found: {BUGS[-1].name}" in capsys.readouterr().out


def test_nothing_must_be_found_without_a_bug(capsys):
    assert reported(results(30, control=12)) == 1
    assert "without a bug, seed 12 found: what is right" in capsys.readouterr().out
    assert planted(CONTROL) == {}


def test_what_fits_a_bug_is_played_in_the_first_half_of_its_seeds():
    bug = Bug("a bug", "a rule", (), ("race", "churn"))
    assert list(kinds_of(bug, 8))[:4] == ["race", "churn", "race", "churn"]
    assert list(kinds_of(bug, 8))[4:] == list(kinds_of(CONTROL, 4))
    assert len(list(kinds_of(bug, 101))) == 101
