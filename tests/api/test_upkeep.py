"""Replicas as another program keeps them up."""

import pytest

from cpreplicate import Place, Sweep, errors, sweep
from cpreplicate.runners import ExecutionOptions
from tests.support.replicas import FILES, aged, recorded, synced

INLINE = ExecutionOptions(runner="inline")


@pytest.fixture
def replica(tmp_path):
    """Return a replica with two files of a run that died two days ago."""
    replica = synced(tmp_path, {1: FILES})
    for name in ("shared/one", "shared/two"):
        (replica / name).write_text("an orphan")
        aged(replica / name)
    recorded(replica, "shared/one", "shared/two")
    return replica


def test_a_sweep_finds_first_and_then_removes(replica):
    found = sweep(replica, dry_run=True, execution=INLINE)
    assert not found.done
    assert {"shared/one", "shared/two"} < {each.target for each in found.deletes}
    done = sweep(Place(replica), min_age="1h", trash=True, execution=INLINE)
    assert done.done
    assert done.trash is not None
    assert not (replica / "shared" / "one").exists()
    assert not sweep(str(replica), execution=INLINE).deletes


def test_a_sweep_of_more_than_is_allowed_is_refused_with_its_report(replica):
    for cap in (1, "10%"):
        with pytest.raises(errors.TooManyDeletes) as raised:
            sweep(replica, max_delete=cap, execution=INLINE)
        assert isinstance(raised.value.report, Sweep)
        assert raised.value.report.replica == f"file:{replica}"
    assert (replica / "shared" / "one").exists()
    assert not sweep(replica, min_age="30d", execution=INLINE).deletes


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_age": "soon"},
        {"min_age": True},
        {"max_delete": "half"},
        {"max_delete": 0.5},
        {"trash": 1},
        {"empty_trash": None},
    ],
    ids=str,
)
def test_a_wrong_value_is_a_usage_error(replica, wrong):
    (name,) = wrong
    with pytest.raises(errors.UsageError, match=f"the option {name} of the API is "):
        sweep(replica, **wrong)
