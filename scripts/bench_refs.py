"""CPU seconds of `inspect --refs` of 300,000 state handles, without those of the start: part of
`make bench`.

The start is measured as the same command on a checkpoint of ten handles.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_start import cpu
from tests.support.generate import synthetic

_CLI = str(Path(sys.executable).parent / "cpreplicate")
_REFERENCES, _SUBTASKS = 300_000, 100
_ROUNDS = 5
_AT_MOST = 2.0  # seconds


def main() -> None:
    """Print the CPU seconds of each form of the result."""
    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as directory:
        large = _checkpoint(Path(directory), "chk-1", _REFERENCES)
        small = _checkpoint(Path(directory), "chk-2", 10)
        forms = {form: ["--output", form] for form in ("text", "json", "ndjson")} | {
            name: ["--to", f"{directory}/{name}"] for name in ("refs.parquet", "refs.arrow")
        }
        for name, words in forms.items():
            command = [_CLI, "inspect", "--refs", *words]
            pairs = [(cpu([*command, large]), cpu([*command, small])) for _ in range(_ROUNDS)]
            whole, start = (min(column) for column in zip(*pairs, strict=True))
            print(f"{name}: {whole - start:.2f} CPU s, start {start:.2f} s; at most {_AT_MOST}")


def _checkpoint(root: Path, name: str, references: int) -> str:
    place = root / name
    place.mkdir()
    with open(place / "_metadata", "wb") as file:
        file.writelines(synthetic(references, min(_SUBTASKS, references)))
    return str(place)


if __name__ == "__main__":
    main()
