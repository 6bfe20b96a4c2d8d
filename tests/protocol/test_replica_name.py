"""Which directory of TARGET_ROOT is the replica of a source."""

import shutil

import pytest

from cpreplicate.errors import Refused
from cpreplicate.protocol.marker import SourceName
from cpreplicate.protocol.replica_name import Named, find_replica, namesake
from cpreplicate.storage import Side

FIXED = "0" * 32
OF_CLUSTER = "ffffffffa1b2c3d4" + "0" * 16  # of an application cluster, by the hash of its name
RANDOM = "55d1c8e0a2b14f6c9e7d3a5b8c0f1e2d"


def named(uri, lone=False, **options):
    return Named(SourceName(uri, uri), lone, **options)


def place(tmp_path, of):
    """The name that the replica of a source has or would have."""
    return find_replica(of, f"file:{tmp_path}", Side()).rpartition("/")[2]


def replica(tmp_path, name, uri):
    """A directory that is the replica of a source, whoever made it."""
    marker = tmp_path / name / ".cpreplicate" / "replica.json"
    marker.parent.mkdir(parents=True)
    sources = f'[{{"given": "{uri}", "resolved": "{uri}"}}]'
    fields = f'"format": 1, "replica_id": "{name}", "job": "x", "adopted": false'
    marker.write_text(f'{{{fields}, "sources": {sources}}}')


def test_a_random_id_is_the_name_of_a_new_replica(tmp_path):
    assert place(tmp_path, named(f"hdfs://a/flink/{RANDOM}")) == RANDOM


@pytest.mark.parametrize("job", [FIXED, OF_CLUSTER])
def test_of_an_id_that_flink_fixes_the_name_says_where_the_source_lies(tmp_path, job):
    names = {
        place(tmp_path, named(f"{root}/{job}"))
        for root in ("hdfs://a/orders", "hdfs://a/payments", "s3://one/x", "s3://two/x")
    }
    assert len(names) == 4
    assert all(name.startswith(f"{job}-") and len(name) == 41 for name in names)


def test_a_directory_without_an_id_is_named_by_its_path(tmp_path):
    names = [place(tmp_path, named(f"hdfs://a/{job}/checkpoints")) for job in ("orders", "clicks")]
    assert [name.rpartition("-")[0] for name in names] == [
        "orders-checkpoints",
        "clicks-checkpoints",
    ]
    odd = place(tmp_path, named("hdfs://a/.x y/ünï§"))
    assert set(odd) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")
    assert not odd.startswith(".")


def test_the_name_is_the_same_whatever_a_host_calls_the_namenodes(tmp_path):
    uris = ("hdfs://ns", "hdfs://nn1:8020", "viewfs://c", "webhdfs://nn1:9870")
    assert len({place(tmp_path, named(f"{uri}/flink/{FIXED}")) for uri in uris}) == 1
    assert len({place(tmp_path, named(f"{uri}/cp/{FIXED}")) for uri in ("s3://b", "s3a://b")}) == 1


@pytest.mark.parametrize("name", [FIXED, "checkpoints", "orders"])
def test_a_replica_that_is_there_keeps_its_name(tmp_path, name):
    source = named(f"hdfs://a/flink/{name}")
    replica(tmp_path, name, source.source.given)
    assert place(tmp_path, source) == name
    assert place(tmp_path, source._replace(has_namesake=True)) == name


def test_who_comes_second_gets_another_name_in_either_order(tmp_path):
    one, other = named(f"hdfs://a/x/{RANDOM}"), named(f"hdfs://a/y/{RANDOM}")
    for first, second in ((one, other), (other, one)):
        root = tmp_path / first.source.given[-34]
        replica(root, place(root, first), first.source.given)
        assert place(root, second).startswith(f"{RANDOM}-")
        replica(root, place(root, second), second.source.given)
        names = [place(root, each) for each in (first, second, first)]
        assert names[0] == names[2] == RANDOM
        assert names[1] != RANDOM


def test_clusters_with_the_same_paths_get_names_of_their_own(tmp_path):
    given = [named(f"hdfs://{name}/flink/{FIXED}") for name in ("a", "b")]
    first = place(tmp_path, given[0])
    replica(tmp_path, first, given[0].source.given)
    second = place(tmp_path, given[1])
    assert second.startswith(f"{first}-")
    replica(tmp_path, second, given[1].source.given)
    assert [place(tmp_path, each) for each in given] == [first, second]


def test_a_replica_reached_under_another_name_is_not_its_own_source(tmp_path):
    one = named(f"hdfs://a/x/{RANDOM}")
    replica(tmp_path, RANDOM, one.source.given)
    itself = named(f"viewfs://c/dst/{RANDOM}")._replace(replica_id=RANDOM)
    assert place(tmp_path, itself) == RANDOM
    assert place(tmp_path, itself._replace(replica_id="of another")) != RANDOM


def test_sources_of_one_process_never_compete_for_a_name(tmp_path):
    given = [named(f"hdfs://{name}/flink/{RANDOM}", has_namesake=True) for name in ("a", "b")]
    names = [place(tmp_path, each) for each in given]
    assert names[0] != names[1]
    replica(tmp_path, names[0], given[0].source.given)
    alone = given[0]._replace(has_namesake=False)  # the other one was taken from the file
    assert place(tmp_path, alone) == names[0]


@pytest.mark.parametrize("job", [RANDOM, FIXED])
def test_same_source_leads_to_the_replica_of_a_renamed_nameservice(tmp_path, job):
    former, new = named(f"hdfs://old/flink/{job}"), named(f"hdfs://new/flink/{job}")
    name = place(tmp_path, former)
    replica(tmp_path, name, former.source.given)
    assert place(tmp_path, new) != name
    assert place(tmp_path, new._replace(same_source=True)) == name


def test_same_source_leads_to_the_replica_that_the_warning_names(tmp_path):
    """The advice is followed after a replica of the new name was made."""
    former, new = named(f"hdfs://old/flink/{RANDOM}"), named(f"hdfs://new/flink/{RANDOM}")
    replica(tmp_path, RANDOM, former.source.given)
    second = place(tmp_path, new)
    root, marker = namesake(new, f"file:{tmp_path}/{second}", Side())
    assert root.rpartition("/")[2] == RANDOM
    assert marker.sources[0].given == former.source.given
    replica(tmp_path, second, new.source.given)
    joining = new._replace(same_source=True)
    assert place(tmp_path, joining) == second  # it may be that of another job
    shutil.rmtree(tmp_path / second)
    assert place(tmp_path, joining) == RANDOM


def test_same_source_joins_no_two_sources_that_one_process_follows(tmp_path):
    one, other = (named(f"hdfs://a/{name}/{FIXED}") for name in ("x", "y"))
    replica(tmp_path, FIXED, one.source.given)
    both = other._replace(has_namesake=True, same_source=True)
    assert place(tmp_path, both) != FIXED


def test_a_name_that_leads_elsewhere_by_now_begins_no_other_replica(tmp_path):
    """The addresses of a nameservice changed: `sync` refuses, as the operator has to decide."""
    replica(tmp_path, RANDOM, f"hdfs://a/flink/{RANDOM}")
    moved = Named(SourceName(f"hdfs://a/flink/{RANDOM}", "hdfs://10.0.0.2/flink/x"), is_lone=False)
    assert place(tmp_path, moved) == RANDOM


def test_a_damaged_marker_hides_no_other_replica_and_is_not_taken_for_nobodys(tmp_path):
    source = named(f"hdfs://a/x/{FIXED}")
    own = place(tmp_path, source)
    damaged = tmp_path / FIXED / ".cpreplicate" / "replica.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{}")
    with pytest.raises(Refused, match="is damaged"):
        place(tmp_path, source)
    replica(tmp_path, own, source.source.given)
    assert place(tmp_path, source) == own


def test_a_directory_of_another_program_is_adopted_under_its_name_only(tmp_path):
    (tmp_path / FIXED / "chk-1").mkdir(parents=True)
    source = named(f"hdfs://a/x/{FIXED}")
    assert place(tmp_path, source) != FIXED
    assert place(tmp_path, source._replace(adopts=True)) == FIXED


def test_a_savepoint_keeps_the_name_of_its_directory_unless_another_has_it(tmp_path):
    source = named("hdfs://a/backups/before-upgrade", lone=True)
    assert place(tmp_path, source) == "before-upgrade"
    replica(tmp_path, "before-upgrade", "hdfs://a/elsewhere/before-upgrade")
    assert place(tmp_path, source).startswith("backups-before-upgrade-")
