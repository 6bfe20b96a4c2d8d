"""`inspect A B`: growth by operator, files added and removed, and what compactions wrote."""

import json

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.inspect import compare
from cpreplicate.operations.inspect.comparison import Amount
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.commandline import printed
from tests.support.corpus import DataCentre
from tests.support.encoder import (
    File,
    Incremental,
    OperatorEntry,
    PlainChannel,
    RelativeFile,
    Subtask,
    Tree,
)
from tests.support.encoder import encode as encoded
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, synced

KEPT = {name: size for name, size in FILES.items() if name in NEXT}
REMOVED = {name: size for name, size in FILES.items() if name not in NEXT}
ADDED = {name: size for name, size in NEXT.items() if name not in FILES}


def amount(files):
    return Amount(len(files), sum(files.values()))


def test_files_are_added_removed_or_kept_and_the_sums_are_those_of_both_checkpoints(tmp_path):
    before = write_checkpoint(tmp_path, 1, FILES)
    after = write_checkpoint(tmp_path, 2, NEXT)
    found = compare(f"file:{before}", f"file:{after}", Side(), ())
    assert (found.added, found.removed, found.kept) == tuple(map(amount, (ADDED, REMOVED, KEPT)))
    assert (found.before.files, found.before.bytes) == amount(FILES)
    assert (found.after.files, found.after.bytes) == amount(NEXT)
    (operator,) = found.operators
    assert (operator.bytes_before, operator.bytes_after) == (amount(FILES)[1], amount(NEXT)[1])
    assert (operator.added, operator.removed) == (found.added, found.removed)


def test_a_replica_has_no_other_files_than_its_source_packed_or_not(tmp_path):
    options = {"keep": 2, "packing": PackOptions("on", 700)}
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, **options)
    source = f"file:{tmp_path}/dcA/{JOB}"
    found = compare(f"{source}/chk-2", f"file:{replica}/chk-2", Side(), ())
    assert (found.added, found.removed, found.kept) == (Amount(), Amount(), amount(NEXT))
    found = compare(f"file:{replica}/chk-1", f"file:{replica}/chk-2", Side(), ())
    assert (found.added, found.removed) == (amount(ADDED), amount(REMOVED))


@pytest.mark.parametrize("packing", [PackOptions(), PackOptions("on", 1 << 17)])
@pytest.mark.parametrize(
    "checkpoint",
    [
        "2.3.0-changelog/ckpt/a6001b24e32e27c056d1ef5a7a83f360/chk-8",
        "2.3.0-chain-claim/ckpt/4b9069f06219da00471b99899784074b/chk-9",
        "2.3.0-sp-canonical/sp/savepoint-5535aa-0079e5e0a1c8",
    ],
)
def test_a_replica_has_no_other_files_also_if_some_are_of_other_places(
    tmp_path, checkpoint, packing
):
    folder, _, path = checkpoint.partition("/")
    datacentre = DataCentre(folder, tmp_path)
    source = f"file:{datacentre.path}/{path}"
    request = SyncRequest(
        source,
        f"file:{tmp_path}/dcB",
        remaps=(datacentre.remap,),
        execution=ExecutionOptions(runner="inline"),
        packing=packing,
    )
    sync.sync(request, lambda _line: None)
    (replica,) = (tmp_path / "dcB").iterdir()
    found = compare(source, f"file:{replica}", Side(), [datacentre.remap])
    assert found.kept.files == found.before.files == found.after.files
    assert (found.added, found.removed) == (Amount(), Amount())


def write(root, number, subtasks):
    """A checkpoint whose subtasks have these shared files, and an exclusive one each."""
    states = [
        Incremental(
            11,
            number,
            "backend",
            (0, 128),
            1,
            RelativeFile(f"meta-{index}", 50),
            tuple((name, File(f"file:{root}/{JOB}/shared/{name}", size)) for name, size in files),
            (),
        )
        for index, files in enumerate(subtasks)
    ]
    entries = tuple(Subtask(index, keyed=state) for index, state in enumerate(states))
    operator = OperatorEntry(bytes(16), len(entries), 128, entries, name="op")
    directory = root / JOB / f"chk-{number}"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(bytes(encoded(Tree(6, (operator,), number)).data))
    return f"file:{directory}"


@pytest.mark.parametrize(
    ("before", "after", "rewritten"),
    [
        # flushed only
        ([[("a", 100)]], [[("a", 100), ("b", 30)]], 0),
        # two files compacted to one, nothing flushed
        ([[("a", 100), ("b", 30)]], [[("c", 120)]], 120),
        # compacted, and flushed: at most as much as was replaced
        ([[("a", 100), ("b", 30)]], [[("c", 120), ("d", 500)]], 130),
        # one subtask compacts what another has not
        ([[("a", 100)], [("b", 30)]], [[("a", 100), ("c", 70)], []], 0),
        ([[("a", 100)], [("b", 30)]], [[("c", 90)], [("d", 30)]], 120),
    ],
)
def test_what_compactions_wrote_follows_from_the_shared_files_of_each_subtask(
    tmp_path, before, after, rewritten
):
    places = write(tmp_path, 1, before), write(tmp_path, 2, after)
    assert compare(places[0], places[1], Side(), ()).rewritten_bytes == rewritten


def test_growth_of_channel_state_is_that_of_the_operator_and_not_of_the_file_that_it_shares(
    tmp_path,
):
    def written(number, sizes):
        file = RelativeFile("channels", sum(sizes))
        operators = tuple(
            OperatorEntry(
                bytes([index] * 16),
                1,
                128,
                (Subtask(0, inputs=(PlainChannel((0, 0, 0), (), size, file),)),),
                name=f"op-{index}",
            )
            for index, size in enumerate(sizes)
        )
        directory = tmp_path / JOB / f"chk-{number}"
        directory.mkdir(parents=True)
        (directory / "_metadata").write_bytes(bytes(encoded(Tree(6, operators, number)).data))
        return f"file:{directory}"

    found = compare(written(1, (1000, 5)), written(2, (100, 6)), Side(), ())
    growth = {each.name: (each.bytes_before, each.bytes_after) for each in found.operators}
    assert growth == {"op-0": (1000, 100), "op-1": (5, 6), None: (0, 0)}  # None has the file


def test_operators_of_either_checkpoint_are_compared(tmp_path):
    datacentre = DataCentre("2.3.0-chain-claim", tmp_path)
    numbers = {job: datacentre.numbers(job) for job in datacentre.jobs()}
    first, second = (
        f"file:{datacentre.job_root(job)}/chk-{numbers[job][0]}" for job in datacentre.jobs()[:2]
    )
    found = compare(first, second, Side(), [datacentre.remap])
    assert sum(each.added.files for each in found.operators) == found.added.files
    assert sum(each.removed.bytes for each in found.operators) == found.removed.bytes
    changes = [abs(each.bytes_after - each.bytes_before) for each in found.operators]
    assert changes == sorted(changes, reverse=True)


def test_text_and_json_show_the_comparison(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    write_checkpoint(tmp_path, 2, NEXT)
    words = ("inspect", f"{JOB}/chk-1", f"{JOB}/chk-2")
    text = printed(*words, cwd=tmp_path).stdout
    assert "added       2 files, 100 B\n" in text
    assert "removed     4 files, 630 B\n" in text
    fields = json.loads(printed(*words, "--output", "json", cwd=tmp_path).stdout)
    assert fields["added"] == {"files": 2, "bytes": 100}
    assert fields["before"]["checkpoint_id"] == 1
    assert fields["operators"][0]["removed"] == {"files": 4, "bytes": 630}
    assert printed("inspect", f"{JOB}/chk-1", f"{JOB}/chk-9", cwd=tmp_path).returncode == 10
