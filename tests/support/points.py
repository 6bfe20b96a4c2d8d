"""Points in time as restic's page describes them: written anew, to judge what a sync kept."""

from __future__ import annotations

from collections.abc import Sequence

from cpreplicate.core.retention import Retention

HOUR, DAY = 3600, 24 * 3600


def of_restic(retention: Retention, times: Sequence[float]) -> set[float]:
    """Return the times of the points that are kept, each of which is another time.

    They are the newest of each of the last hours and days with a point, the last ones, those within
    a time of the newest, and the oldest while counts are left.
    """
    chosen = {max(times), *sorted(times)[len(times) - min(retention.last, len(times)) :]}
    chosen |= {time for time in times if time > max(times) - retention.within}
    for length, count in ((HOUR, retention.hourly), (DAY, retention.daily)):
        newest = {time // length: time for time in sorted(times)}
        chosen |= {newest[period] for period in sorted(newest, reverse=True)[:count]}
        if len(newest) < count:
            chosen.add(min(times))
    return chosen


def kept_of(retention: Retention, times: Sequence[float], now: float) -> list[int]:
    """Return the places of the points that are kept, whatever the clocks were: newest first.

    A point is newer than another if it was replicated later. Its time says only to which hour and
    day it belongs, and how long before the newest it was.
    """
    counted_from = next((time for time in times if time <= now), now)
    kept = {0, *range(min(retention.last, len(times)))}
    if retention.within:
        kept |= {
            place for place, time in enumerate(times) if time > counted_from - retention.within
        }
    for length, count in ((HOUR, retention.hourly), (DAY, retention.daily)):
        last_of: dict[float, int] = {}
        for place, time in enumerate(times):
            last_of.setdefault(time // length, place)
        kept |= {*list(last_of.values())[:count]}
        if len(last_of) < count:
            kept.add(len(times) - 1)
    return sorted(kept)
