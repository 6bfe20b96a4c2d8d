"""A local file that a result is written to: a page, or a table of state handles."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EISDIR
from pathlib import Path
from stat import S_ISDIR

from cpreplicate.core.placement import OWN
from cpreplicate.protocol.marker import MARKER

_MODE = 0o666  # the umask takes its bits away
_OF_NAME = 40  # characters in the name of the temporary file, of which a filesystem holds few


def replica_around(path: str) -> str | None:
    """Return the replica that a local file would be in, None if it would be in none.

    A replica has only the files that cpreplicate recorded there. Symbolic links are followed, also
    one at `path`: who appends to it writes where it leads. Raises `OSError` if a
    directory cannot be entered.
    """
    directory = Path(os.path.realpath(Path(path).parent))
    led_to = Path(os.path.realpath(path)).parent
    for each in (directory, *directory.parents, led_to, *led_to.parents):
        if (each / OWN / MARKER).is_file():
            return str(each)
    return None


def try_to_write(path: str) -> None:
    """Find out whether a file can be written, and leave nothing behind. Raises `OSError`."""
    with suppress(FileNotFoundError):
        if S_ISDIR(Path(path).stat().st_mode):  # `is_dir` of new Pythons hides a name too long
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    with _beside(path):
        pass


@contextmanager
def replacing(path: str) -> Iterator[Path]:
    """Yield the path of a new, empty file, which takes the place of `path` if all goes well.

    A reader finds the former file or the whole new one. Raises `OSError`; that of a write, which
    names no file, names this one.
    """
    try:
        with _beside(path) as temporary:
            yield temporary
            temporary.replace(path)
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        raise


@contextmanager
def _beside(path: str) -> Iterator[Path]:
    """Yield the path of a new file beside another one. It is gone at the end."""
    place = Path(path)
    temporary = place.with_name(f".{place.name[:_OF_NAME]}.{secrets.token_hex(4)}.part")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE))
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
