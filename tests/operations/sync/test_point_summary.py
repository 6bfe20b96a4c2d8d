"""What a sync of a replica with many points reads: the summary of these, as long as it is true."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from pyarrow import parquet

from cpreplicate.core import uri
from cpreplicate.core.retention import Retention
from cpreplicate.errors import CpreplicateError, Refused
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep.removal import RemovalRequest, remove
from cpreplicate.protocol.journal import JournalRow, JournalWriter
from cpreplicate.protocol.point_summary import NAME, WORTH
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import examine
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.statuses import FileStatus
from tests.support.kept_points import SETTLES, KeptPoints
from tests.support.points import HOUR
from tests.support.s3 import S3Server, side_options
from tests.support.simulated import SimulatedDisk, SimulatedJob, files
from tests.support.simulated_store import SimulatedStore
from tests.support.staging import TARGET_ROOT, running_on, silent
from tests.support.untimed import hold_time


class Hourly:
    """A job that completes a checkpoint each hour, and a replica that keeps the last ones."""

    def __init__(self, keep: int, disk: SimulatedDisk | None = None, passes: float = HOUR) -> None:
        self.disk = disk or SimulatedDisk()
        self.disk.pieces = 1
        self.job = SimulatedJob(self.disk, Random(keep))
        self.keep, self.passes, self.number = keep, passes, 0
        self.replica = f"{TARGET_ROOT}/{self.job.job}"
        self.own = f"{self.replica}/.cpreplicate"
        self.summary = f"{self.own}/{NAME}"

    @property
    def request(self) -> SyncRequest:
        keep, execution = Retention(last=self.keep), ExecutionOptions(runner="inline")
        return SyncRequest(
            *(self.job.root, TARGET_ROOT), keep=keep, execution=execution, subsumption_wait=0.0
        )

    def complete(self) -> None:
        self.number += 1
        self.job.complete(self.number)
        self.disk.clock.pass_(self.passes)

    def sync(self, count: int = 1) -> Report:
        for _ in range(count):
            self.complete()
            with running_on(self.disk):
                report = sync(self.request, silent)
        return report

    def calls(self) -> Counter[str]:
        """The calls at the target of the next sync. Those that read a `_metadata` are `points`."""
        seen: Counter[str] = Counter()

        def count(moment: str, verb: str, place: str) -> None:
            seen[verb] += moment == "before" and uri.within(place, TARGET_ROOT)
            is_point = place.startswith(f"{self.replica}/chk-") and place.endswith("/_metadata")
            seen["points"] += (moment, verb, is_point) == ("before", "open", True)

        self.disk.hook = count
        self.sync()
        self.disk.hook = lambda *_: None
        return seen

    def record(self, number: int) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.disk.data(f"{self.own}/chk-{number}.json") or b"")
        return fields

    def rewrite(self, change: Callable[[Any], Any]) -> bytes:
        """Change the rows of the summary, and return what it holds then."""
        head, _, body = (self.disk.data(self.summary) or b"").partition(b"\n")
        written = io.BytesIO()
        table = change(parquet.read_table(pa.BufferReader(body)))
        parquet.write_table(table, written, write_page_checksum=True)
        data = head + b"\n" + written.getvalue()
        self.disk.place(self.summary, data)
        return data

    def vouch(self, number: int, data: bytes) -> None:
        """Let a record vouch for another summary."""
        fields = self.record(number) | {"summary": hashlib.sha256(data).hexdigest()}
        self.disk.place(f"{self.own}/chk-{number}.json", json.dumps(fields).encode())


def outcome(hourly: Hourly) -> object:
    """What a sync would do now, or why it would not."""
    with running_on(hourly.disk):
        try:
            report = diff(hourly.request)
        except CpreplicateError as error:
            return str(error)
    refusal = None if report.refusal is None else str(report.refusal)
    return refusal, sorted((each.action, each.target) for each in report.plan.actions)


KINDS = [SimulatedDisk, SimulatedStore]
of_each_kind = pytest.mark.parametrize("kind", KINDS)


@of_each_kind
def test_the_calls_of_a_sync_do_not_grow_with_the_points(kind: type[SimulatedDisk]) -> None:
    few, many = Hourly(2 * WORTH, kind()), Hourly(8 * WORTH, kind())
    few.sync(3 * WORTH)
    many.sync(9 * WORTH)
    # one of them writes the summary anew
    calls = [[each.calls() for _ in range(2 * WORTH)] for each in (few, many)]
    most = [max(counted.total() for counted in each) for each in calls]
    assert most[1] <= most[0] + 3  # how many files go decides about some
    opened = [max(counted["open"] for counted in each) for each in calls]
    assert opened[1] <= opened[0]


def test_a_standby_writes_no_summary() -> None:
    hourly = Hourly(1)
    hourly.sync(WORTH + 2)
    assert not hourly.disk.is_file(hourly.summary)
    assert "summary" not in hourly.record(hourly.number)


def test_the_newest_record_vouches_for_the_summary_of_the_others() -> None:
    hourly = Hourly(2 * WORTH)
    hourly.sync(3 * WORTH)
    digest = hashlib.sha256(hourly.disk.data(hourly.summary) or b"").hexdigest()
    assert hourly.record(hourly.number)["summary"] == digest


def test_points_that_may_change_within_the_same_time_are_not_summarised() -> None:
    hourly = Hourly(2 * WORTH, passes=0)
    hourly.sync(3 * WORTH)
    assert not hourly.disk.is_file(hourly.summary)


class Undated(SimulatedDisk):
    """A storage that has no times of directories, as object stores have not."""

    def list(self, uri: str) -> list[FileStatus]:
        return [
            each._replace(modified=0.0) if each.is_directory else each for each in super().list(uri)
        ]


class Stale(SimulatedDisk):
    """A storage that dates a directory when it is made, and never again."""

    def list(self, uri: str) -> list[FileStatus]:
        return [
            each._replace(modified=1.0) if each.is_directory else each for each in super().list(uri)
        ]


class Untagged(SimulatedStore):
    """An object store whose listings have no tags."""

    has_tags = False


@pytest.mark.parametrize("kind", [Undated, Stale, Untagged])
def test_directories_without_times_of_their_own_are_listed(kind: type[SimulatedDisk]) -> None:
    hourly = Hourly(2 * WORTH, kind())
    hourly.sync(3 * WORTH)
    assert not hourly.disk.is_file(hourly.summary)


class Crowded(SimulatedStore):
    """An object store on which more calls list all points at once than one for each of them."""

    page = 1


def test_points_are_read_where_a_listing_of_all_at_once_takes_more_calls_than_points() -> None:
    hourly = Hourly(2 * WORTH, Crowded())
    hourly.sync(3 * WORTH)
    assert hourly.disk.is_file(hourly.summary)
    assert hourly.calls()["points"] >= hourly.keep
    hourly.sync(2)
    assert there(hourly) == needed(hourly)


def test_a_replica_with_one_point_costs_no_listing_of_all_points_at_once() -> None:
    calls = []
    for kind in (SimulatedStore, Untagged):
        hourly = Hourly(1, kind())
        hourly.sync(WORTH + 2)
        calls.append(hourly.calls())
    assert calls[0] == calls[1]  # the latter is never listed so


def test_a_replica_that_was_copied_within_object_stores_is_read_once() -> None:
    """The copies have other times, and the same tags."""
    hourly = Hourly(2 * WORTH, SimulatedStore())
    hourly.sync(3 * WORTH)
    for path, data in files(hourly.disk.snapshot(), hourly.replica).items():
        hourly.disk.place(path, data)
    hourly.disk.clock.pass_(HOUR)
    assert hourly.calls()["points"] >= hourly.keep
    assert hourly.calls()["points"] < hourly.keep
    assert there(hourly) == needed(hourly)


def another_metadata(hourly: Hourly, name: str) -> None:
    """A job writes its checkpoint over that of the replica: of the same length, for good."""
    place = f"{hourly.replica}/{name}/_metadata"
    data = hourly.disk.data(place) or b""
    hourly.disk.write_new(f"{place}.new", lambda: [data[:-1] + bytes([data[-1] ^ 1])])
    hourly.disk.rename(f"{place}.new", place, replace=True)


def another_metadata_of_the_same_time(hourly: Hourly, name: str) -> None:
    """As above. Several nodes of a store date objects, and their clocks are not one."""
    place = f"{hourly.replica}/{name}/_metadata"
    data = hourly.disk.data(place) or b""
    now, hourly.disk.clock.now = hourly.disk.clock.now, hourly.disk.modified(place)
    hourly.disk.place(place, data[:-1] + bytes([data[-1] ^ 1]))
    hourly.disk.clock.now = now


def a_directory_for_metadata(hourly: Hourly, name: str) -> None:
    hourly.disk.remove(f"{hourly.replica}/{name}/_metadata")
    hourly.disk.place(f"{hourly.replica}/{name}/_metadata/part/_metadata", b"")


def no_metadata(hourly: Hourly, name: str) -> None:
    hourly.disk.remove(f"{hourly.replica}/{name}/_metadata")


def no_record(hourly: Hourly, name: str) -> None:
    hourly.disk.remove(f"{hourly.own}/{name}.json")


def no_manifest(hourly: Hourly, name: str) -> None:
    hourly.disk.remove(f"{hourly.own}/{name}.parquet")


def another_record(hourly: Hourly, name: str) -> None:
    """It makes the point the oldest one, in as many bytes."""
    place = f"{hourly.own}/{name}.json"
    fields = json.loads(hourly.disk.data(place) or b"")
    assert fields["sequence"] in range(2, 10)
    hourly.disk.place(place, json.dumps(fields | {"sequence": 1}).encode())


def a_link(hourly: Hourly, name: str) -> None:
    hourly.disk.link(f"{hourly.replica}/{name}", f"{hourly.job.root}/chk-{hourly.number}")


CHANGES = [another_metadata, no_metadata, no_record, no_manifest, another_record]
CHANGES_OF = [
    *((kind, change) for kind in KINDS for change in CHANGES),
    (SimulatedDisk, a_link),
    (SimulatedStore, another_metadata_of_the_same_time),
    (SimulatedStore, a_directory_for_metadata),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES_OF, ids=lambda each: each.__name__)
def test_a_point_that_changed_is_seen_as_without_a_summary(
    kind: type[SimulatedDisk], change: Callable[[Hourly, str], None]
) -> None:
    hourly = Hourly(2 * WORTH, kind())
    hourly.sync(3 * WORTH)
    before = outcome(hourly)
    change(hourly, f"chk-{hourly.number - WORTH}")
    hourly.complete()
    with_summary = outcome(hourly)
    hourly.disk.remove(hourly.summary)
    assert outcome(hourly) == with_summary != before


def test_a_summary_that_nothing_vouches_for_is_not_used() -> None:
    hourly = Hourly(2 * WORTH)
    hourly.sync(3 * WORTH)
    assert hourly.calls()["points"] < hourly.keep
    hourly.rewrite(lambda table: table)  # it states the same, in other bytes
    assert hourly.calls()["points"] >= hourly.keep
    hourly.sync()
    assert there(hourly) == needed(hourly)


@pytest.mark.parametrize("name", [[], {}])
def test_a_summary_whose_points_have_no_names_is_written_anew(name: object) -> None:
    hourly = Hourly(2 * WORTH)
    hourly.sync(3 * WORTH)
    head, _, body = (hourly.disk.data(hourly.summary) or b"").partition(b"\n")
    fields = json.loads(head)
    fields["points"][0][0] = name
    hourly.disk.place(hourly.summary, json.dumps(fields).encode() + b"\n" + body)
    hourly.sync()
    assert there(hourly) == needed(hourly)


@of_each_kind
@pytest.mark.parametrize("more", range(4))
def test_a_wrong_summary_for_which_a_record_vouches_deletes_no_file_of_the_next_point(
    more: int, kind: type[SimulatedDisk]
) -> None:
    """As if a version with a bug had written it: it hides what the next point needs, too."""
    hourly = Hourly(2 * WORTH, kind())
    hourly.sync(3 * WORTH + more)
    oldest = hourly.number - hourly.keep + 1
    names = json.loads((hourly.disk.data(hourly.summary) or b"").partition(b"\n")[0])["points"]
    place = [each[0] for each in names].index(f"chk-{oldest}")

    def hide(table: Any) -> Any:
        rows = zip(table["first"].to_pylist(), table["last"].to_pylist(), strict=True)
        lasts = [place if first <= place < last == place + 1 else last for first, last in rows]
        assert lasts != table["last"].to_pylist()
        last = pa.array(lasts, table["last"].type)
        return table.set_column(table.schema.get_field_index("last"), "last", last)

    hourly.vouch(hourly.number, hourly.rewrite(hide))
    hourly.sync()
    assert needed(hourly) <= there(hourly)
    hourly.sync(2)
    assert there(hourly) == needed(hourly)
    gone = f"{hourly.replica}/chk-{oldest}/"
    assert not any(path.startswith(gone) for path in files(hourly.disk.snapshot()))


def test_after_a_run_that_died_no_summary_proves_that_what_it_wrote_is_not_needed() -> None:
    """As above, and the summary hides what one point alone needs, which the dead run had copied."""
    hourly = Hourly(2 * WORTH)
    hourly.sync(3 * WORTH)
    point = hourly.number - WORTH
    names = json.loads((hourly.disk.data(hourly.summary) or b"").partition(b"\n")[0])["points"]
    place = [each[0] for each in names].index(f"chk-{point}")
    own = [path for path in there(hourly) if path.startswith(f"chk-{point}/")]
    assert own

    def hide(table: Any) -> Any:
        is_hidden = [path in own for path in table["path"].to_pylist()]
        assert table["first"].to_pylist()[is_hidden.index(True)] == place
        return table.filter(pa.array([not each for each in is_hidden]))

    hourly.vouch(hourly.number, hourly.rewrite(hide))
    with running_on(hourly.disk):
        journal = JournalWriter(Side().storage(hourly.replica), hourly.replica)
        journal.plan(own)
        for path in own:
            data = hourly.disk.data(f"{hourly.replica}/{path}") or b""
            journal.done(JournalRow(path, len(data), google_crc32c.value(data)))
        journal.flush()
    hourly.sync()
    assert needed(hourly) <= there(hourly)


class PuttingOff(Hourly):
    """A service, which puts deletes off."""

    @property
    def request(self) -> SyncRequest:
        return replace(super().request, async_deletes=True)


def test_a_pack_that_an_executor_of_a_dead_run_writes_late_is_among_the_deletes_of_a_service() -> (
    None
):
    """Its sweeps would take it for another program's once the dead run is forgotten."""
    hourly = PuttingOff(2 * WORTH)
    hourly.sync(3 * WORTH)
    hourly.disk.clock.pass_(1.0)
    with running_on(hourly.disk):
        journal = JournalWriter(Side().storage(hourly.replica), hourly.replica)
        journal.plan([journal.pack_stem])
    hourly.sync()
    assert hourly.disk.is_file(hourly.summary)
    pack = f"{journal.pack_stem}-fedcba987654"
    hourly.disk.place(f"{hourly.replica}/{pack}", b"late")
    assert pack in hourly.sync().undeleted


@pytest.mark.parametrize("verb", ["PUT", "DELETE"])
def test_on_s3_a_sync_makes_no_request_a_point(
    s3: S3Server, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a `_metadata` was put over one, or deleted, all points are read again."""
    bucket = s3.make_bucket(f"points-{verb.lower()}")
    requests, side = [], Side((("s3:", tuple(side_options(s3.endpoint).items())),))
    for count in (WORTH + 1, 3 * WORTH + 1):
        kept = KeptPoints(tmp_path / str(count), side, f"{bucket}/{count}", count)
        kept.sync()  # which reads all
        time.sleep(SETTLES)  # what it wrote is young, and read again, for that long
        with monkeypatch.context() as patched:
            hold_time(patched)
            calls = kept.calls()
        requests.append(calls.total() - calls["points"])
        assert calls["points"] <= WORTH
    assert requests[1] <= requests[0] + 2
    name = f"chk-{kept.number - WORTH}"
    if verb == "PUT":
        kept.rewrite(name, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(Refused, match=name):
            kept.sync()
    else:
        side.storage(kept.root).delete(f"{kept.replica}/{name}/_metadata")
        kept.sync()
        state = examine(Replica(kept.replica, side))
        assert name not in [each.name for each in state.committed]


def there(hourly: Hourly) -> set[str]:
    """The files of state in the replica."""
    return {
        path.removeprefix(f"{hourly.replica}/")
        for path in files(hourly.disk.snapshot(), hourly.replica)
        if not path.startswith(f"{hourly.own}/") and not path.endswith("/_metadata")
    }


def needed(hourly: Hourly) -> set[str]:
    """The files that the points need that are to be kept."""
    first, root = hourly.number - hourly.keep + 1, hourly.job.root.removeprefix("file:")
    return {
        need.path.removeprefix(f"{root}/")
        for number in range(first, hourly.number + 1)
        for need in hourly.job.references[number]
    }


def test_a_replica_is_removed_with_its_summary() -> None:
    hourly = Hourly(2 * WORTH)
    hourly.sync(3 * WORTH)
    assert hourly.disk.is_file(hourly.summary)
    with running_on(hourly.disk):
        asked = RemovalRequest(hourly.replica, execution=ExecutionOptions(runner="inline"))
        remove(asked, lambda *_: None, silent)
    assert not [path for path in files(hourly.disk.snapshot()) if uri.within(path, hourly.replica)]
