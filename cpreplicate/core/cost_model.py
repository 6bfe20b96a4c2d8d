"""How long a run takes, and how many calls it makes, from what it has to do. Pure.

A runner is chosen by `HDFS_RATES` alone, so that the choice does not depend on earlier runs.

The seconds of a run are a fixed part, and its files, bytes and deletes at the rates of earlier runs
between the same sites. Where these showed no rate, a default is used and the range is wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from cpreplicate.core.packs import PACK_BYTES, writers_for

_MEANINGFUL_FILES = 100  # copies or deletes from which a run shows their rate
_MEANINGFUL_BYTES = 16 << 20
_MEANINGFUL_SHARE = 0.3  # of the expected time of the copies that a rate must explain
_LEARNED_FACTOR = 1.5  # by which a learned rate may be wrong in either direction
_DEFAULT_FACTOR = 3.0  # and a default one
_WITHIN_BYTES = 100e6  # a second that a process reads and writes at one site
_FILES_A_JOURNAL = 2_000  # copies after which the journal gets a further part

RateSamples = Mapping[str, Sequence[float]]
"""The values that earlier runs showed for fields of `Rates`, by the name of the field."""


class Work(NamedTuple):
    """What a run has to do: numbers of files, and their bytes.

    `files` become files of the target and `packed` ones members of packs. `read` files are compared
    with their CRC32C first. The files of the checkpoint lie in so many `directories`. Of the
    `files` and the `packed` ones, `within` are copied within the target. Their bytes count apart:
    `within_bytes` of them pass through the run's processes.
    """

    files: int = 0
    bytes: int = 0
    packed: int = 0
    packed_bytes: int = 0
    deletes: int = 0
    read: int = 0
    read_bytes: int = 0
    directories: int = 0
    within: int = 0
    within_bytes: int = 0

    @property
    def packs(self) -> int:
        """About how many packs are written."""
        if not self.packed:
            return 0
        return max(writers_for(self.packed_bytes), -(-self.packed_bytes // PACK_BYTES))


class Rates(NamedTuple):
    """What a runner needs between two sites: seconds, and files, deletes or bytes a second.

    `fixed` and `fixed_packed` are the seconds of a run that copies next to nothing, without and
    with packs. `wait` of them pass while the copies run: the close of a file may wait that long.
    """

    fixed: float
    fixed_packed: float
    files: float
    packed: float
    bytes: float
    deletes: float
    wait: float = 0.0
    within: float = _WITHIN_BYTES

    def times_as_fast(self, factor: float) -> Rates:
        """Return the rates of so many times the workers."""
        return self._replace(
            files=self.files * factor,
            packed=self.packed * factor,
            bytes=self.bytes * factor,
            deletes=self.deletes * factor,
            within=self.within * factor,
        )

    def later(self, delay: float) -> Rates:
        """Return the rates if the first copies begin so many seconds later."""
        return self._replace(
            fixed=self.fixed + delay,
            fixed_packed=self.fixed_packed + delay,
            wait=self.wait + delay,
        )


class Learned(NamedTuple):
    """Rates, and the names of those that earlier runs showed."""

    rates: Rates
    names: frozenset[str] = frozenset()


class Bounds(NamedTuple):
    """The limits of a run: bytes a second, and metadata operations a second on each cluster.

    `read` and `put` are the operations of one file at the source and at the target, 0 where they
    are not limited. `is_one_cluster`: both count against one limit.
    """

    bandwidth: float | None = None
    operations: float | None = None
    read: int = 0
    put: int = 0
    is_one_cluster: bool = False


class Seconds(NamedTuple):
    """An estimate in seconds, and the range in which the run is expected to lie."""

    expected: float
    low: float
    high: float


class Took(NamedTuple):
    """The seconds of a run without the startup time of its runner, and parts of these."""

    whole: float
    copies: float
    deletes: float
    others: float = 0.0


class CallCosts(NamedTuple):
    """The calls that a run makes to one NameNode, for each kind of work."""

    fixed: float
    file: float = 0.0
    packed: float = 0.0
    pack: float = 0.0
    delete: float = 0.0
    directory: float = 0.0
    journal: float = 0.0
    second: float = 0.0
    within: float = 0.0


# Rates of one process: docs/lab/hdfs.md. `wait`: hdfs-native sleeps 500 ms if the NameNode
# answers `complete` with "not yet".
HDFS_RATES = Rates(0.7, 1.0, 200, 1_000, 200e6, 2_000, wait=0.5)
LOCAL_RATES = Rates(0.1, 0.1, 1_000, 5_000, 200e6, 5_000)
OTHER_RATES = Rates(1.0, 1.2, 200, 500, 100e6, 500)

# Calls to the NameNodes as these counted them: docs/lab/hdfs.md. The first run into a replica
# has no old checkpoint to read and to remove, but looks for what else may lie there.
SOURCE_CALLS = CallCosts(fixed=6, file=1, packed=1, within=-1)
FIRST_SOURCE_CALLS = SOURCE_CALLS._replace(fixed=11)
TARGET_CALLS = CallCosts(
    fixed=60, file=4.77, pack=5, delete=1, directory=2, journal=6, second=5 / 20, packed=0, within=1
)
FIRST_TARGET_CALLS = TARGET_CALLS._replace(fixed=44)


def learned(defaults: Rates, samples: RateSamples) -> Learned:
    """Return the median of the samples of each rate, and the default where there are none."""
    medians = {name: median(values) for name, values in samples.items() if values}
    return Learned(defaults._replace(**medians), frozenset(medians))


def seconds(work: Work, known: Learned, bounds: Bounds, start: float = 0.0) -> Seconds:
    """Return how long a run takes whose runner takes `start` seconds to start.

    A run is never expected to exceed a limit, not even at the lower end of the range.
    """
    expected, low, high = (
        start + _with_uncertainty(work, known, bounds, power) for power in (0, -1, 1)
    )
    return Seconds(expected, low, high)


def copy_seconds(work: Work, rates: Rates, bounds: Bounds) -> float:
    """Return how long the copies and reads of a run take."""
    return max(sum(_copies(work, rates).values()), _least_for_copies(work, bounds))


def learned_share(work: Work, known: Learned) -> float:
    """Return the share of the seconds that was estimated by rates of earlier runs."""
    parts = {**_fixed(work, known.rates), **_copies(work, known.rates), **_deletes(work, known)}
    whole = sum(parts.values())
    return sum(parts[name] for name in parts.keys() & known.names) / whole if whole else 1.0


def calls(work: Work, costs: CallCosts, whole: float) -> int:
    """Return how many calls a run of `whole` seconds makes to a NameNode."""
    return round(
        costs.fixed
        + costs.file * work.files
        + costs.packed * work.packed
        + costs.pack * work.packs
        + costs.delete * work.deletes
        + costs.directory * work.directories
        + costs.journal * ((work.files + work.packed) // _FILES_A_JOURNAL)
        + costs.second * whole
        + costs.within * work.within
    )


def is_limited(work: Work, bounds: Bounds, took: Took) -> bool:
    """Return whether a limit decided how long the run took, rather than the sites."""
    least = _least_for_copies(work, bounds) + _least_for_deletes(work, bounds)
    return least > 0.5 * (took.copies + took.deletes)


def samples(work: Work, took: Took, known: Learned) -> Iterator[tuple[str, float]]:
    """Yield what a run showed: the name of a rate, and its value.

    A rate is shown only by enough files or bytes, and if it explains a good part of the time. If
    two rates do, the run was faster or slower than expected in both.
    """
    rates = known.rates
    parts = _copies(work, rates)
    expected = sum(parts.values())
    spent = max(took.copies - rates.wait, 0.0)
    amounts = {"files": work.files, "packed": work.packed}
    shown = [name for name, amount in amounts.items() if amount >= _MEANINGFUL_FILES]
    if work.bytes + work.packed_bytes >= _MEANINGFUL_BYTES:
        shown.append("bytes")
    shown = [name for name in shown if parts[name] >= _MEANINGFUL_SHARE * expected]
    if spent and expected:
        for name in shown:
            yield name, getattr(rates, name) * expected / spent
    if work.deletes >= _MEANINGFUL_FILES and took.deletes:
        yield "deletes", work.deletes / took.deletes
    copying = spent if shown else min(spent, expected)
    fixed = max(took.whole - took.deletes - took.others - copying, 0.0)
    yield "fixed_packed" if work.packed else "fixed", fixed


def _with_uncertainty(work: Work, known: Learned, bounds: Bounds, power: int) -> float:
    """Return the seconds if every rate is as wrong as it may be, in the direction of `power`."""

    def wrong(parts: Mapping[str, float]) -> float:
        return sum(part * _factor(name, known) ** power for name, part in parts.items())

    copies = max(wrong(_copies(work, known.rates)), _least_for_copies(work, bounds))
    deletes = max(wrong(_deletes(work, known)), _least_for_deletes(work, bounds))
    return wrong(_fixed(work, known.rates)) + copies + deletes


def _factor(name: str, known: Learned) -> float:
    return _LEARNED_FACTOR if name in known.names else _DEFAULT_FACTOR


def _fixed(work: Work, rates: Rates) -> dict[str, float]:
    return {"fixed_packed": rates.fixed_packed} if work.packed else {"fixed": rates.fixed}


def _copies(work: Work, rates: Rates) -> dict[str, float]:
    """Return the seconds of the copies, and of the reads, by the rate that they follow from."""
    whole_bytes = work.bytes + work.packed_bytes + work.read_bytes
    return {
        "files": work.files / rates.files,
        "packed": (work.packed + work.read) / rates.packed,
        "bytes": whole_bytes / rates.bytes,
        "within": work.within_bytes / max(rates.within, rates.bytes),
    }


def _deletes(work: Work, known: Learned) -> dict[str, float]:
    return {"deletes": work.deletes / known.rates.deletes}


def _least_for_copies(work: Work, bounds: Bounds) -> float:
    """Return the seconds that the limits leave for copies."""
    passing = work.bytes + work.packed_bytes + work.within_bytes
    by_bytes = passing / bounds.bandwidth if bounds.bandwidth else 0.0
    if not bounds.operations:
        return by_bytes
    reads = bounds.read * (work.files + work.packed - work.within)
    puts = bounds.put * (work.files + work.packs) + (work.within if bounds.put else 0)
    most = reads + puts if bounds.is_one_cluster else max(reads, puts)
    return max(by_bytes, most / bounds.operations)


def _least_for_deletes(work: Work, bounds: Bounds) -> float:
    return work.deletes / bounds.operations if bounds.operations and bounds.put else 0.0
