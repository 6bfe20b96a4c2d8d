"""What carries out copies and deletes, as it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpreplicate.runners.progress import ShowProgress

# local[*] never retries a task; the second number is how often a task may be tried
DEFAULT_MASTER = "local[*,4]"


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """`runner` is `auto`, `spark` or `inline`; the rest is taken as measured or as the cluster has
    it where it is None.

    `conf` are properties of Spark, a later one winning. `parallelism` is how many slots are to be
    filled with batches, or files copied at once by `inline`; `streams` how many files a task copies
    at once; `explain`: tell why it was chosen; `show` is called every second with how far it is.
    """

    runner: str = "auto"
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    parallelism: int | None = None
    batch_bytes: int | None = None
    batch_files: int | None = None
    streams: int | None = None
    explain: bool = False
    show: ShowProgress | None = field(default=None, compare=False)

    def property(self, name: str) -> str | None:
        """A property of Spark, as given."""
        return dict(self.conf).get(name)

    def spark_master(self) -> str | None:
        """`--master`, or that of the properties."""
        return self.master or self.property("spark.master")
