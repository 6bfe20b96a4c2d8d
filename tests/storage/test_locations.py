"""What people write for a place."""

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import locations


@pytest.mark.parametrize(
    "text",
    ["~/x", "~bob/x", "$HOME/x", "${HOME}/x", "$ROOT", "`pwd`/x", "$(pwd)/x", "dcB-${DC}/x"],
)
def test_what_a_shell_should_have_expanded_is_refused_unless_it_is_there(
    tmp_path, monkeypatch, text
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no shell has expanded"):
        locations.absolute(text)
    assert locations.absolute(f"./{text}") == f"file:{tmp_path}/{text}"
    (tmp_path / text.partition("/")[0]).mkdir()
    assert locations.absolute(text) == f"file:{tmp_path}/{text}"


@pytest.mark.parametrize("part", ["$JOB", "of-${JOB}", "$(hostname)", "`hostname`"])
def test_so_it_is_further_down_in_a_local_path(tmp_path, monkeypatch, part):
    monkeypatch.chdir(tmp_path)
    for text in (f"{tmp_path}/{part}/x", f"file:{tmp_path}/{part}/x", f"x/{part}"):
        with pytest.raises(UsageError, match="no shell has expanded"):
            locations.absolute(text)
    (tmp_path / part).mkdir()
    assert locations.absolute(f"{tmp_path}/{part}/x") == f"file:{tmp_path}/{part}/x"


def test_a_home_behind_the_slashes_of_a_uri_is_refused():
    for text in ("file:///~/x", "/~/x"):
        with pytest.raises(UsageError, match="no shell has expanded ~"):
            locations.absolute(text)


def test_a_place_of_a_host_as_for_scp_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="names a host, as for scp"):
        locations.absolute("flink@dcB:/data")
    assert locations.absolute("./flink@dcB:/data") == f"file:{tmp_path}/flink@dcB:/data"
    assert locations.absolute("abfs://c@a.example/data") == "abfs://c@a.example/data"


def test_a_remap_of_two_names_that_are_no_schemes_is_refused():
    with pytest.raises(UsageError, match=r"Write \./old=\./new for local paths"):
        locations.remaps([("old", "new")])
    assert locations.remaps([("old", "hdfs")]) == (("old:", "hdfs:"),)


@pytest.mark.parametrize(
    ("text", "instead"), [("file:x/y", "Write x/y for"), ("hdfs:x/y", "Write hdfs://, then")]
)
def test_a_relative_path_behind_a_scheme_is_answered_with_what_to_write(text, instead):
    with pytest.raises(UsageError, match=f"Flink rejects it too. {instead}"):
        locations.absolute(text)


@pytest.mark.parametrize("text", ["file:x", "nosuch:x", "file:/../x"])
def test_a_path_that_none_can_have_is_a_mistake_of_its_writer(text):
    with pytest.raises(UsageError):
        locations.absolute(text)


def test_prices_and_other_names_with_a_dollar_are_names():
    assert locations.absolute("/data/in-$/_$folder$") == "file:/data/in-$/_$folder$"
    assert locations.absolute("/data/~/$x~") == "file:/data/~/$x~"
    assert locations.absolute("hdfs://a/$JOB") == "hdfs://a/$JOB"  # only its storage knows
