"""Where files are in a replica."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core import uri
from cpreplicate.core.closure import File, FileTable
from cpreplicate.core.placement import Placement, is_replica_path, job_root
from cpreplicate.errors import Refused

JOB = "hdfs://dcA/ckpt/job2"
PLACEMENT = Placement(f"{JOB}/chk-7", JOB, "chk-7")
NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=300
)
PATTERN = uri.plain_name.__self__  # type: ignore[attr-defined]  # a bound method, by its type a function
PLAIN = st.from_regex(PATTERN, fullmatch=True) | st.sampled_from(
    ["_metadata", "chk-7", "x" * 200, "x" * 201]
)


def files_at(sources):
    return FileTable.of({source: File(source, 1) for source in sources})


@pytest.mark.parametrize("given", ["", "/", "/chk-7", "/chk-7/", "/chk-7/_metadata", "/_metadata"])
def test_every_spelling_of_a_source_names_the_same_job(given):
    assert job_root(JOB + given) == JOB


@pytest.mark.parametrize(
    "relative", ["chk-7/a", "chk-6/a", "shared/a", "taskowned/tm/a", "shared/op/a", "foreign/0-a"]
)
def test_the_jobs_own_files_lie_as_at_the_source(relative):
    assert PLACEMENT.place(f"{JOB}/{relative}") == relative


@pytest.mark.parametrize(
    "source",
    [
        "hdfs://dcA/ckpt/job1/shared/a",
        "hdfs://dcA/dstl/job2/dstl/a",
        "s3://bucket/4f2a/ckpt/job2/chk-7/a",
        f"{JOB}/chk-7/_metadata",
        f"{JOB}/.cpreplicate/lease",
        f"{JOB}/shared/.cpreplicate-tmp-1",
        f"{JOB}/loose",
        JOB,
    ],
)
def test_anything_else_becomes_foreign_under_a_flat_name_of_its_own(source):
    target = PLACEMENT.place(source)
    directory, _, name = target.partition("/")
    assert directory == "foreign"
    assert "/" not in name
    assert is_replica_path(target)


def test_a_foreign_file_keeps_its_place_from_checkpoint_to_checkpoint():
    later = Placement(f"{JOB}/chk-8", JOB, "chk-8")
    foreign = "hdfs://dcA/ckpt/job1/shared/a"
    assert later.place(foreign) == PLACEMENT.place(foreign)


def test_foreign_files_of_one_name_do_not_meet():
    assert PLACEMENT.place("hdfs://dcA/j1/shared/a") != PLACEMENT.place("hdfs://dcA/j0/shared/a")


def test_a_savepoint_lies_in_a_checkpoint_directory():
    savepoint = Placement("hdfs://dcA/sp/savepoint-1", None, "chk-3")
    assert savepoint.place("hdfs://dcA/sp/savepoint-1/a") == "chk-3/a"
    assert savepoint.place("hdfs://dcA/sp/savepoint-2/a").startswith("foreign/")


@given(NAMES)
def test_a_foreign_name_fits_every_filesystem(name):
    target = PLACEMENT.place(f"hdfs://dcA/elsewhere/{name}")
    assert len(target.partition("/")[2].encode()) <= 255 - len(".cpreplicate-tmp-")


@given(st.lists(NAMES, unique=True), st.sampled_from(["shared", "foreign", "../job1/shared"]))
def test_two_source_files_never_meet_on_one_target(names, directory):
    sources = [f"{JOB}/{directory}/{name}" for name in names]
    placed = PLACEMENT.place_all(files_at(sources))
    assert sorted(file.uri for file in placed.values()) == sorted(sources)
    assert all(PLACEMENT.place(file.uri) == target for target, file in placed.items())


@given(
    st.lists(
        st.tuples(st.sampled_from(["shared", "chk-7", "../job1", "shared/a"]), PLAIN), unique=True
    ),
    st.data(),
)
def test_files_of_directories_with_plain_names_lie_where_each_alone_would_lie(files, data):
    sources = [f"{JOB}/{directory}/{name}" for directory, name in files]
    plain = (
        data.draw(st.sets(st.sampled_from(sorted(uri.directories(sources))))) if sources else set()
    )
    placed = PLACEMENT.place_all(files_at(sources), plain)
    assert placed == {PLACEMENT.place(source): File(source, 1) for source in sources}


def test_sources_that_would_meet_are_refused():
    foreign = "hdfs://dcA/ckpt/job1/shared/a"
    with pytest.raises(Refused, match="both"):
        PLACEMENT.place_all(files_at([foreign, f"{JOB}/{PLACEMENT.place(foreign)}"]))


def test_a_foreign_merge_directory_holds_no_file_of_the_replica():
    directory = PLACEMENT.place_directory("hdfs://dcA/ckpt/job1/shared")
    assert not PLACEMENT.place("hdfs://dcA/ckpt/job1/shared/a").startswith(directory + "/")


def test_merge_directories_of_the_job_lie_as_at_the_source_but_never_a_whole_shared_directory():
    assert PLACEMENT.place_directory(f"{JOB}/shared/job_1_op_2") == "shared/job_1_op_2"
    assert PLACEMENT.place_directory(f"{JOB}/shared").startswith("foreign/")
    assert PLACEMENT.place_directory(JOB).startswith("foreign/")


@pytest.mark.parametrize(
    "hidden", ["shared/%2e%2e/other", "shared/a%252f..%252fb", "taskowned/.cpreplicate"]
)
def test_a_merge_directory_that_hides_a_step_becomes_foreign(hidden):
    assert PLACEMENT.place_directory(f"{JOB}/{hidden}").startswith("foreign/")


def test_a_name_encoded_a_million_times_over_becomes_foreign_at_once():
    """Decoding it to its end would take hours."""
    assert PLACEMENT.place(f"{JOB}/shared/%{'25' * 1_000_000}2e").startswith("foreign/")


@pytest.mark.parametrize(
    "path",
    [
        "_metadata",
        "shared",
        "other/x",
        ".cpreplicate/lease",
        "chk-x/y",
        "chk-7/_metadata",
        "shared/../../x",
        "shared//x",
        "shared/.",
    ],
)
def test_only_places_of_closure_files_may_be_deleted(path):
    assert not is_replica_path(path)
