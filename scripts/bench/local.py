"""The same bytes from the local disk to it by eight threads: `local.py SOURCE TARGET`, directories
with files in `shared`.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_STREAMS = 8


def main(source: str, target: str) -> None:
    """Copy all."""
    names = [path.name for path in Path(source, "shared").iterdir()]
    Path(target, "shared").mkdir(parents=True)
    with ThreadPoolExecutor(_STREAMS) as pool:
        list(
            pool.map(
                lambda name: shutil.copyfile(
                    Path(source, "shared", name), Path(target, "shared", name)
                ),
                names,
            )
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
