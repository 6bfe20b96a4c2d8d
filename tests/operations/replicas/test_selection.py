"""The name of a job or the beginning of its id selects a replica, or an error names them all."""

import json
import os
import re
import shutil

import pytest

from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.replicas.selection import select
from cpreplicate.protocol import seal
from cpreplicate.storage import Side
from tests.support.registry import serving
from tests.support.replicas import held
from tests.support.roots import FIRST, HOUR, NOON, SECOND, THIRD, Roots
from tests.support.tracing import Tracing


def selected(roots, job):
    return select(f"file:{roots.targets}", Side(), job)


def job_of(roots, job):
    return selected(roots, job).replica.rpartition("/")[2]


@pytest.fixture
def roots(tmp_path):
    return Roots(tmp_path)


def test_a_name_selects_the_replica_of_the_job(roots):
    roots.add(FIRST, "orders")
    roots.add(SECOND, "clicks")
    found = selected(roots, "orders")
    assert found.replica == f"file:{roots.root}/dcB/{FIRST}"
    assert FIRST in found.why
    assert found.others == ()


def test_a_name_that_cannot_be_recorded_as_it_is_selects_the_replica_too(roots):
    roots.add(FIRST, " a\nb")
    assert job_of(roots, " a\nb") == job_of(roots, "a?b") == FIRST


def test_an_id_and_its_beginning_select_a_replica_with_or_without_a_name(roots):
    roots.add(FIRST, "orders")
    roots.add(THIRD)
    assert [job_of(roots, job) for job in (FIRST, FIRST[:4], FIRST[:9], THIRD, THIRD[:4])] == [
        FIRST,
        FIRST,
        FIRST,
        THIRD,
        THIRD,
    ]


def test_of_a_job_that_restarted_the_replica_with_the_newest_checkpoint_is_selected(roots):
    roots.add(SECOND, "orders", NOON, NOON + HOUR)
    roots.add(THIRD, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    roots.add(FIRST, "orders", NOON + 5 * HOUR, NOON + 5 * HOUR)
    found = selected(roots, "orders")
    assert found.replica.endswith(FIRST)
    assert [place.rpartition("/")[2] for place in found.others] == [THIRD, SECOND]
    assert all(job in found.why for job in (FIRST, SECOND, THIRD))


def test_a_run_that_was_not_completed_yet_does_not_hide_the_replica_before_it(roots):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    shutil.rmtree(roots.add(SECOND, "orders", NOON + 2 * HOUR) / "chk-1")
    assert job_of(roots, "orders") == FIRST


def claimed(roots, job, since):
    """The replica of a job that was restored from it with CLAIM, and deleted its checkpoint."""
    place = roots.add(job, "orders", since, since)
    with held(place) as replica:
        seal.seal(replica, "chk-1")
    shutil.rmtree(place / "chk-1")
    return place


@pytest.mark.parametrize("lost", [(), ("chk-1.json",), ("sealed",), ("chk-1.json", "sealed")])
def test_a_replica_whose_job_deleted_the_promoted_checkpoint_is_not_older_than_before(roots, lost):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    place = claimed(roots, SECOND, NOON + 2 * HOUR)
    for name in lost:  # or damaged
        (place / ".cpreplicate" / name).write_text("{")
    found = selected(roots, "orders")
    assert found.replica.endswith(SECOND)
    assert f"{SECOND} (" in found.why
    assert "which is not there any more) has the newest checkpoint" in found.why


def test_a_life_of_which_nothing_is_recorded_any_more_keeps_earlier_ones_from_being_taken(roots):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    own = claimed(roots, SECOND, NOON + 2 * HOUR) / ".cpreplicate"
    (own / "chk-1.json").unlink()
    record = json.loads((own / "job.json").read_text())
    (own / "job.json").write_text(json.dumps({**record, "since": None}))
    found = selected(roots, "orders")
    assert found.replica.endswith(SECOND)
    assert f"{SECOND} (chk-1, which is not there any more)" in found.why


def test_a_life_whose_checkpoint_a_job_has_replaced_is_not_older_than_before(roots):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    place = roots.add(SECOND, "orders", NOON + 2 * HOUR, NOON + 2 * HOUR)
    (place / "chk-1" / "_metadata").write_bytes(b"of a job that writes here")
    assert job_of(roots, "orders") == SECOND  # which promote refuses


def test_a_life_that_began_after_a_promotion_is_the_newest(roots):
    claimed(roots, FIRST, NOON)
    roots.add(SECOND, "orders", NOON + HOUR, NOON + HOUR)
    assert job_of(roots, "orders") == SECOND


def test_jobs_of_one_name_and_of_different_sources_are_an_error_that_names_them(roots):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    roots.add(SECOND, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR, source="other")
    with pytest.raises(Refused, match=f"different sources.*{SECOND}.*{FIRST}"):
        selected(roots, "orders")


@pytest.mark.parametrize("begin", [NOON - HOUR, NOON + HOUR / 2, NOON + HOUR])
def test_jobs_of_one_name_that_ran_at_the_same_time_are_an_error_that_names_them(roots, begin):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    roots.add(SECOND, "orders", begin, NOON + 3 * HOUR)
    roots.add(THIRD, "orders", NOON + 4 * HOUR, NOON + 5 * HOUR)
    with pytest.raises(Refused, match="at the same time") as error:
        selected(roots, "orders")
    assert all(job in str(error.value) for job in (FIRST, SECOND, THIRD))


def test_a_beginning_of_several_ids_is_an_error_that_names_them(roots):
    other = FIRST[:30] + SECOND[-2:]
    roots.add(FIRST, "orders")
    roots.add(other)
    with pytest.raises(UsageError, match=f"2 ids.*{FIRST}.*{other}"):
        selected(roots, FIRST[:4])


@pytest.mark.parametrize("job", ["0", FIRST[:3]])
def test_a_few_characters_of_an_id_select_nothing(roots, job):
    roots.add(FIRST, "orders")
    with pytest.raises(UsageError, match=f"4 of its characters or more.*{FIRST}"):
        selected(roots, job)


def test_an_id_with_a_mistake_gets_the_nearest_ids(roots):
    roots.add(FIRST, "orders")
    roots.add(THIRD, "clicks")
    with pytest.raises(NotThere, match=rf"There are '{FIRST}'"):
        selected(roots, f"{FIRST[:8]}f{FIRST[9:]}")


def test_a_name_that_another_id_begins_with_is_an_error_that_names_both(roots):
    roots.add(FIRST)
    roots.add(THIRD, "0a0a")
    with pytest.raises(UsageError, match=f"{FIRST}.*{THIRD}"):
        selected(roots, "0a0a")


def test_the_uri_of_a_replica_selects_it_though_another_one_has_its_id(roots):
    fixed = "0" * 32
    roots.add(fixed, "orders")
    roots.add(f"{fixed}-1a2b3c4d", "clicks")
    with pytest.raises(UsageError, match="is the id of 2 jobs") as refused:
        selected(roots, fixed)
    words = re.findall(r"--job (file:\S+)", str(refused.value))
    assert [job_of(roots, word) for word in words] == [fixed, f"{fixed}-1a2b3c4d"]
    assert job_of(roots, f"{roots.targets}/{fixed}") == fixed


def test_a_whole_id_wins_over_a_name(roots):
    roots.add(FIRST)
    roots.add(THIRD, FIRST)
    assert job_of(roots, FIRST) == FIRST


def test_a_name_that_its_own_id_begins_with_is_no_error(roots):
    roots.add(FIRST, "0a0a")
    assert job_of(roots, "0a0a") == FIRST


@pytest.mark.parametrize("job", ["order", "", "../dcA", "x" * 1000, "\n"])
def test_a_name_that_no_replica_has_is_an_error_that_lists_the_nearest(roots, job):
    roots.add(FIRST, "orders")
    roots.add(SECOND, "clicks")
    with pytest.raises(NotThere, match=r"orders.*clicks|clicks.*orders"):
        selected(roots, job)


def test_replicas_of_earlier_versions_without_names_are_selected_by_id_only(roots):
    roots.add(FIRST)
    with pytest.raises(NotThere, match="No name is recorded"):
        selected(roots, "orders")


def test_directories_of_others_are_never_selected(roots):
    roots.add(FIRST, "orders")
    (roots.root / "dcB" / "0a0a-of-another-program").mkdir()
    (roots.root / "dcB" / ".hidden").mkdir()
    assert job_of(roots, "0a0a") == FIRST
    with pytest.raises(NotThere):
        selected(roots, "0a0a-of-another-program")


def test_a_damaged_marker_of_the_same_name_is_an_error_that_names_it(roots):
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    damaged = roots.add(SECOND, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    (damaged / ".cpreplicate" / "replica.json").write_text("{}")
    with pytest.raises(Refused, match=SECOND):
        selected(roots, "orders")
    assert job_of(roots, FIRST) == FIRST


def test_a_damaged_record_of_a_name_hides_no_other_replica(roots):
    roots.add(FIRST, "orders")
    (roots.add(SECOND, "orders") / ".cpreplicate" / "job.json").write_bytes(os.urandom(1 << 17))
    assert job_of(roots, "orders") == FIRST


def test_a_replica_or_nothing_instead_of_a_target_root_is_an_error(roots):
    place = roots.add(FIRST, "orders")
    with pytest.raises(UsageError, match="is a replica"):
        select(f"file:{place}", Side(), "orders")
    with pytest.raises(NotThere):
        select(f"file:{roots.root}/nowhere", Side(), "orders")
    with pytest.raises(NotThere):
        select(f"file:{place}/chk-1/_metadata", Side(), "orders")


def test_a_name_costs_one_listing_and_one_read_for_each_replica(roots):
    for number in range(20):
        roots.add(f"{number:032x}", f"job-{number}")
    with serving("file", tracing := Tracing(Side().storage("file:/"))):
        selected(roots, "job-7")
    verbs = [verb for verb, _place in tracing.calls]
    assert (verbs.count("list"), len(verbs)) == (1, 21)
    assert tracing.changes() == []


def test_a_job_that_its_source_shows_to_have_run_on_is_another_one_of_the_same_name(roots):
    roots.add(FIRST, "orders", NOON, NOON)
    roots.add(SECOND, "orders", NOON + HOUR, NOON + 2 * HOUR)
    assert job_of(roots, "orders") == SECOND
    metadata = roots.root / "dcA" / FIRST / "chk-4" / "_metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_bytes(b"completed")
    os.utime(metadata, (NOON + 3 * HOUR,) * 2)
    assert job_of(roots, "orders") == SECOND  # nobody asked the source
    with pytest.raises(Refused, match=f"ran at the same time, {FIRST} and {SECOND}.*chk-4"):
        select(f"file:{roots.targets}", Side(), "orders", Side())
