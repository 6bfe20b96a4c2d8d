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
