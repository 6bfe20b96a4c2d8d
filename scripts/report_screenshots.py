"""Make the screenshots of docs/reports.md: the page of `sync --dry-run` of a checkpoint that Flink
wrote, in both themes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.browser import running
from tests.support.commandline import run

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
_CORPUS = "2.3.0-rocks-incr"
_JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"
_SIZE = (1000, 830)  # pixels


def main() -> int:
    """Make both screenshots."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        os.environ["XDG_CACHE_HOME"] = place
        page = _page(Path(place))
        IMAGES.mkdir(exist_ok=True)
        with running(Path(place) / "profile") as browser:
            for theme in ("light", "dark"):
                browser.prefer(theme)
                browser.open(page)
                (IMAGES / f"report-{theme}.png").write_bytes(browser.screenshot(*_SIZE))
    return 0


def _page(place: Path) -> Path:
    source, target = place / "dcA" / "checkpoints", place / "dcB" / "replicas"
    shutil.copytree(ROOT / "tests" / "data" / "corpus" / _CORPUS / "ckpt", source)
    options = ["--remap", f"file:/srv/flink/datacenter/{_CORPUS}/ckpt={source}", "--runner"]
    options += ["inline", "--keep", "2", "--quiet"]
    for number in (6, 7):
        run("sync", source / _JOB / f"chk-{number}", target, *options)
    page = place / "page.html"
    last = source / _JOB / "chk-8"
    ended = run("sync", "--dry-run", last, target, *options, "--report", page)
    assert ended.code == 0, ended
    return page


if __name__ == "__main__":
    sys.exit(main())
