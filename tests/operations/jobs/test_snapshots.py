"""A `FlinkStateSnapshot` of each job is kept current, and what others keep stays as it is."""

import dataclasses
import re

import pytest

from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.errors import CpreplicateError, Refused, Unanswered
from cpreplicate.operations.jobs.restore_point import RestorePoint
from cpreplicate.operations.jobs.restore_state import RestoreState
from cpreplicate.operations.jobs.snapshots import (
    SnapshotCounts,
    SnapshotKeeper,
    change_of,
    label_of,
    manifest_of,
)
from tests.support.stepping import ManualClock

JOB = "0123456789abcdef0123456789abcdef"
REPLICA = f"hdfs://dcB/flink/replicas/{JOB}"
NOON = 1_700_000_000.0


def point(number, observed=NOON, replica=REPLICA, name="orders", job=JOB):
    checkpoint = f"{replica}/chk-{number}"
    starting = Starting(checkpoint, Restore("NO_CLAIM", None, ""), {}, {}, 0)
    state = RestoreState(starting)
    return RestorePoint(name, replica, job, state, observed, 0.0, False, None, None)


def manifest(*words, **options):
    made = manifest_of(point(*words, **options))
    assert made is not None
    return made


class InMemory:
    """The objects of a namespace. `error` is what each call answers instead, if it is set."""

    def __init__(self):
        self.objects, self.calls, self.error, self._uid = {}, [], None, 0

    def listed(self, selector):
        self._call("list")
        wanted = dict(each.split("=") for each in selector.split(","))
        return [
            each
            for each in self.objects.values()
            if wanted.items() <= each["metadata"].get("labels", {}).items()
        ]

    def create(self, manifest):
        self._call("create")
        name = manifest["metadata"]["name"]
        if name in self.objects:
            raise Refused(f"{name} already exists")
        self._uid += 1
        made = {**manifest, "metadata": {**manifest["metadata"], "uid": str(self._uid)}}
        self.objects[name] = made
        return made

    def delete(self, name, uid):
        self._call("delete")
        if name in self.objects and self.objects[name]["metadata"]["uid"] == uid:
            del self.objects[name]

    def _call(self, verb):
        self.calls.append(verb)
        if self.error is not None:
            raise self.error

    def paths(self):
        return [each["spec"]["savepoint"]["path"] for each in self.objects.values()]


class Keeper:
    """A keeper that is asked to update, whose clock and points a test sets."""

    def __init__(self, namespace, *points):
        self.points, self.clock = list(points), ManualClock()
        self.lines: list[str] = []
        self.keeper = SnapshotKeeper(namespace, lambda: self.points, self.lines.append, self.clock)

    def update(self, *points):
        self.points = list(points)
        return self.keeper.update()


@pytest.fixture
def namespace():
    return InMemory()


def test_the_object_names_the_checkpoint_and_disposes_of_nothing():
    made = manifest(7)
    assert made["spec"]["savepoint"] == {
        "path": f"{REPLICA}/chk-7",
        "alreadyExists": True,
        "disposeOnDelete": False,
    }
    assert made["metadata"]["annotations"]["cpreplicate/job-name"] == "orders"
    assert made["metadata"]["labels"]["cpreplicate/job-id"] == "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", ["a" * 300, "Ünïcode/…\n", "\ud800", ""])
def test_any_name_of_a_job_can_be_sent(name):
    annotations = manifest(1, name=name)["metadata"]["annotations"]
    assert all(text.encode().decode() == text for text in annotations.values())


@pytest.mark.parametrize("job", ["Ünï code", "a" * 100, "-x-", "abc"])
def test_any_directory_of_a_replica_has_a_valid_label(job):
    label = manifest(1, replica=f"hdfs://dcB/{job}")["metadata"]["labels"]["cpreplicate/job-id"]
    assert re.fullmatch("[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label)


def test_a_password_in_a_uri_is_in_no_field():
    with_password = point(1, replica="hdfs://me:secret@dcB/flink/job")
    named = dataclasses.replace(with_password, replica="hdfs://dcB/flink/job")
    assert "secret" not in repr(manifest_of(named))


def test_a_replica_without_a_checkpoint_has_no_object(namespace):
    empty = dataclasses.replace(point(1), restore_state=RestoreState())
    keeper = Keeper(namespace)
    assert keeper.update(empty)
    assert namespace.objects == {}
    assert keeper.keeper.counts() == SnapshotCounts(1, 0)


def test_the_object_of_a_checkpoint_replaces_that_of_the_one_before(namespace):
    keeper = Keeper(namespace)
    keeper.update(point(1))
    keeper.update(point(2, NOON + 60))
    assert namespace.paths() == [f"{REPLICA}/chk-2"]
    assert namespace.calls == ["list", "create", "create", "delete"]
    assert keeper.keeper.counts() == SnapshotCounts(0, 0)


def test_what_is_current_costs_no_call(namespace):
    keeper = Keeper(namespace)
    for _ in range(5):
        keeper.update(point(1))
    assert namespace.calls == ["list", "create"]


def test_a_service_that_starts_again_goes_on_with_what_is_there(namespace):
    Keeper(namespace).update(point(1))
    Keeper(namespace).update(point(1, NOON + 60))
    assert namespace.calls == ["list", "create", "list"]
    Keeper(namespace).update(point(2, NOON + 120))
    assert namespace.paths() == [f"{REPLICA}/chk-2"]


def test_what_another_service_has_seen_later_stays(namespace):
    Keeper(namespace).update(point(2, NOON + 60))
    assert Keeper(namespace).update(point(1, NOON))
    assert namespace.paths() == [f"{REPLICA}/chk-2"]


def test_an_object_dated_in_the_future_holds_up_no_change_and_the_clock_is_named(namespace):
    keeper = Keeper(namespace)
    Keeper(namespace).update(point(1, keeper.clock.now() + 86_400))
    for number in (2, 3):
        keeper.clock.pass_(60.0)
        assert keeper.update(point(number, keeper.clock.now()))
        assert namespace.paths() == [f"{REPLICA}/chk-{number}"]
    (line,) = keeper.lines
    assert "in the future, and was replaced. Synchronise the clocks" in line
    assert keeper.keeper.counts() == SnapshotCounts(0, 0)


def test_an_object_of_a_service_whose_clock_is_ahead_by_what_is_allowed_stays(namespace):
    keeper = Keeper(namespace)
    Keeper(namespace).update(point(2, keeper.clock.now() + 29))
    assert keeper.update(point(1, keeper.clock.now()))
    assert namespace.paths() == [f"{REPLICA}/chk-2"]
    assert keeper.lines == []


def test_two_services_that_see_the_same_checkpoints_hinder_each_other_nowhere(namespace):
    active, standin = Keeper(namespace), Keeper(namespace)
    for number in range(1, 5):
        for seconds, each in enumerate((active, standin)):  # at once: no list shows the other's
            assert each.update(point(number, NOON + 60 * number + seconds))
    assert namespace.paths() == [f"{REPLICA}/chk-4"]
    assert active.lines == standin.lines == []
    assert standin.keeper.counts() == active.keeper.counts() == SnapshotCounts(0, 0)


def test_what_another_service_has_seen_later_stays_also_since_the_last_list(namespace):
    active, late = Keeper(namespace), Keeper(namespace)
    late.update(point(1, NOON))
    for number in (2, 3):
        active.update(point(number, NOON + 60 * number))
    late.clock.pass_(120.0)
    assert late.update(point(2, NOON + 61))
    assert namespace.paths() == [f"{REPLICA}/chk-3"]
    assert namespace.calls.count("create") == 3


def test_an_object_that_may_not_be_deleted_is_one_failure(namespace):
    keeper = Keeper(namespace)
    keeper.update(point(1))

    def deny(_name, _uid):
        raise Refused("403")

    namespace.delete = deny
    assert not keeper.update(point(2, NOON + 60))
    (line,) = keeper.lines
    assert "orders: its FlinkStateSnapshot is not current: 403" in line
    assert keeper.keeper.counts() == SnapshotCounts(1, 1)


def test_what_two_services_have_created_beside_each_other_is_one_after_the_next_list(namespace):
    active, late = Keeper(namespace), Keeper(namespace)
    late.update(point(1, NOON))
    active.update(point(2, NOON + 120))
    late.update(point(3, NOON + 60))  # within seconds of the list
    active.clock.pass_(10_000.0)
    assert active.update(point(2, NOON + 120))
    assert namespace.paths() == [f"{REPLICA}/chk-2"]


def test_the_object_of_an_older_checkpoint_that_was_promoted_replaces_the_newer_one(namespace):
    keeper = Keeper(namespace)
    keeper.update(point(2))
    keeper.update(point(1, NOON + 60))
    assert namespace.paths() == [f"{REPLICA}/chk-1"]


def test_the_objects_of_jobs_that_are_not_found_any_more_stay(namespace):
    keeper = Keeper(namespace)
    keeper.update(point(1))
    keeper.clock.pass_(10_000.0)
    keeper.update()
    assert namespace.paths() == [f"{REPLICA}/chk-1"]


def test_an_object_of_another_owner_is_left_and_reported_and_holds_up_no_other(namespace):
    foreign = manifest(1)
    foreign["metadata"] = {"name": foreign["metadata"]["name"], "uid": "theirs"}
    namespace.objects[foreign["metadata"]["name"]] = foreign
    keeper = Keeper(namespace)
    other = point(3, replica=f"{REPLICA[:-1]}0", name="clicks")
    assert not keeper.update(point(1), other)
    assert namespace.objects[foreign["metadata"]["name"]] is foreign
    assert f"{REPLICA[:-1]}0/chk-3" in namespace.paths()
    assert keeper.lines[0].startswith("orders: ")
    assert "already exists" in keeper.lines[0]
    assert keeper.keeper.counts() == SnapshotCounts(1, 1)


def test_an_object_that_somebody_deleted_is_there_again_after_the_next_list(namespace):
    keeper = Keeper(namespace)
    keeper.update(point(1))
    namespace.objects.clear()
    keeper.clock.pass_(10_000.0)
    keeper.update(point(1))
    assert namespace.paths() == [f"{REPLICA}/chk-1"]


def test_a_failure_is_reported_once_for_all_jobs_and_made_good_later(namespace):
    keeper = Keeper(namespace)
    namespace.error = CpreplicateError("the API server of Kubernetes answered 403: no")
    points = [point(1, replica=f"{REPLICA[:-1]}{each}", name=f"job-{each}") for each in range(3)]
    assert not keeper.update(*points)
    assert len(keeper.lines) == len(namespace.calls) == 1
    assert "403" in keeper.lines[0]
    namespace.error = None
    assert keeper.update(*points)
    assert len(namespace.objects) == 3
    assert keeper.keeper.counts() == SnapshotCounts(0, 1)


def test_an_object_that_lacks_what_we_write_is_replaced(namespace):
    made = manifest(1)
    namespace.objects["odd"] = {
        "metadata": {"name": "odd", "uid": "u", "labels": made["metadata"]["labels"]}
    }
    Keeper(namespace).update(point(1))
    assert namespace.paths() == [f"{REPLICA}/chk-1"]


def test_nothing_is_deleted_before_its_successor_is_there(namespace):
    keeper = Keeper(namespace)
    keeper.update(point(1))
    create = namespace.create

    def fail(_manifest):
        raise CpreplicateError("the API server of Kubernetes does not answer")

    namespace.create = fail
    assert not keeper.update(point(2, NOON + 60))
    assert namespace.paths() == [f"{REPLICA}/chk-1"]
    namespace.create = create
    assert keeper.update(point(2, NOON + 60))
    assert namespace.paths() == [f"{REPLICA}/chk-2"]


def test_what_could_not_be_deleted_is_deleted_later_whatever_the_fraction_of_its_second(namespace):
    keeper, delete = Keeper(namespace), namespace.delete
    keeper.update(point(1))

    def fail(_name, _uid):
        raise Unanswered("the API server of Kubernetes does not answer")

    namespace.delete = fail
    newer = point(2, NOON + 60.0006)  # is written as 60.001
    assert not keeper.update(newer)
    assert keeper.keeper.counts().behind == 1
    namespace.delete = delete
    assert keeper.update(newer)
    assert namespace.paths() == [f"{REPLICA}/chk-2"]


def test_replicas_of_one_id_below_two_roots_have_labels_of_their_own():
    assert label_of("hdfs://a/x") != label_of("hdfs://b/x")
    assert change_of(point(1), (), NOON) is not None


def test_jobs_of_one_id_have_objects_of_their_own_and_labels_that_tell_them_apart(namespace):
    """As application clusters with high availability have, which count alike."""
    places = [f"hdfs://dcB/{root}/{'0' * 32}" for root in ("orders", "payments")]
    keeper = Keeper(namespace)
    points = [point(7, replica=place, name=place.split("/")[3]) for place in places]
    assert keeper.update(*points)
    assert sorted(namespace.paths()) == [f"{place}/chk-7" for place in places]
    labels = [each["metadata"]["labels"] for each in namespace.objects.values()]
    assert {each["cpreplicate/job-name"] for each in labels} == {"orders", "payments"}
    assert len({each["cpreplicate/replica"] for each in labels}) == 2
    assert keeper.keeper.counts() == SnapshotCounts(0, 0)


@pytest.mark.parametrize("name", ["a" * 64, "b c", "ünï", "§", "", "-x-", "a" * 63])
def test_any_name_of_a_job_has_a_valid_label_of_its_own(name):
    valid = "([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
    labels = [manifest(1, name=each)["metadata"]["labels"] for each in (name, f"{name}!")]
    names = [each["cpreplicate/job-name"] for each in labels]
    assert all(re.fullmatch(valid, each) for each in names)
    assert names[0] != names[1]


class Odd(InMemory):
    """A namespace some of whose answers are odd."""

    def __init__(self):
        super().__init__()
        self.refused, self.items = {}, []

    def listed(self, selector):
        return [*self.items, *super().listed(selector)]

    def create(self, manifest):
        error = self.refused.get(manifest["metadata"]["annotations"]["cpreplicate/job-name"])
        if isinstance(error, Exception):
            raise error
        made = super().create(manifest)
        return made if error is None else error


@pytest.mark.parametrize("error", [Refused("403"), Unanswered("no answer"), {}, "<html>", []])
def test_an_object_that_fails_is_counted_and_holds_up_no_other(error):
    odd = Odd()
    odd.refused["orders"] = error
    kept = Keeper(odd)
    others = [point(1, replica=f"{REPLICA}{n}", name=f"job-{n}") for n in range(3)]
    assert not kept.update(point(1), *others)
    assert kept.keeper.counts() == SnapshotCounts(behind=1, failures=1)
    assert {f"{each.replica}/chk-1" for each in others} <= set(odd.paths())
    del odd.refused["orders"]
    odd.objects = {}
    assert kept.update(point(1), *others)
    assert kept.keeper.counts() == SnapshotCounts(behind=0, failures=1)


@pytest.mark.parametrize("item", [None, {}, 7, {"metadata": {"labels": None}}])
def test_an_odd_object_in_a_list_hides_no_other(item):
    odd = Odd()
    odd.items = [item]
    kept = Keeper(odd)
    kept.update(point(1))
    assert odd.paths() == [f"{REPLICA}/chk-1"]
    assert kept.keeper.counts().behind == 0


@pytest.mark.parametrize("error", [TypeError("odd"), CpreplicateError("a proxy answers")])
def test_a_list_that_cannot_be_read_leaves_all_jobs_behind_and_is_tried_again(namespace, error):
    kept = Keeper(namespace)
    namespace.error = error
    assert not kept.update(point(1))
    assert kept.keeper.counts() == SnapshotCounts(behind=1, failures=1)
    namespace.error = None
    assert kept.update(point(1))


def test_a_server_that_does_not_answer_is_asked_a_few_times_and_the_others_first_the_next_time():
    odd = Odd()
    points = [point(1, replica=f"{REPLICA}{n}", name=f"job-{n}") for n in range(9)]
    odd.refused = {f"job-{n}": Unanswered("no answer") for n in range(5)}
    kept = Keeper(odd)
    for _ in range(3):
        assert not kept.update(*points)
    assert len(odd.paths()) == 4
