"""DistCp with `-strategy dynamic`: its maps take chunks of the listing from each other, as Spark's
slots take batches.
"""

from __future__ import annotations

from pathlib import Path

from scripts.bench import distcp


def build() -> None:
    """Have DistCp, and our class."""
    distcp.build()
    distcp._run("javac", "-d", str(distcp._CLASSES), "-cp", f"{distcp._JARS}/*", "DynamicMaps.java")


def command(
    source: str, target: str, scratch: Path, maps: int, settings: tuple[str, ...] = ()
) -> list[str]:
    """`distcp -strategy dynamic -update SOURCE TARGET` with so many maps, all at the same time."""
    dynamic = (
        "distcp.dynamic.strategy.impl=DynamicMaps",
        "fs.file.impl=DynamicMaps$Staging",
        *settings,
    )
    words = distcp.command(source, target, scratch, maps, dynamic)
    at = words.index("-update")
    return [*words[:at], "-strategy", "dynamic", *words[at:]]
