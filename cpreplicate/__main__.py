"""The console script `cpreplicate`, which `python -m cpreplicate` is, too."""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # that of `typing`: until `main` is called, a SIGHUP ends the process

if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; see `cpreplicate.cli.main`.

    A SIGHUP waits until the command is known: that of a fleet reads its configuration again. The
    imports take most of the time until then.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    from cpreplicate.cli import main as run

    run()


if __name__ == "__main__":
    main()
