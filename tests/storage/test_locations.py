"""What people write for a place."""

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import locations


@pytest.mark.parametrize("text", ["~/x", "~bob/x", "$HOME/x", "${HOME}/x", "$ROOT"])
def test_what_a_shell_should_have_expanded_is_refused_unless_it_is_there(
    tmp_path, monkeypatch, text
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no shell has expanded"):
        locations.absolute(text)
    assert locations.absolute(f"./{text}") == f"file:{tmp_path}/{text}"
    (tmp_path / text.partition("/")[0]).mkdir()
    assert locations.absolute(text) == f"file:{tmp_path}/{text}"


@pytest.mark.parametrize("text", ["file:x", "nosuch:x", "file:/../x"])
def test_a_path_that_none_can_have_is_a_mistake_of_its_writer(text):
    with pytest.raises(UsageError):
        locations.absolute(text)


def test_prices_and_other_names_with_a_dollar_are_names():
    assert locations.absolute("/data/$HOME") == "file:/data/$HOME"
    assert locations.absolute("/~/$x~") == "file:/~/$x~"
