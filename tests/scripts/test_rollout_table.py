"""The table of docs/rollout.md is that of its script, which computes from docs/lab/."""

import re
from pathlib import Path

import pytest

from scripts.rollout_table import MB, MEASURED, NIGHT, Job, Need, table

DOCS = Path(__file__).parent.parent.parent / "docs"
LAB = "".join(path.read_text() for path in sorted((DOCS / "lab").glob("*.md")))


def test_the_page_has_the_table_of_the_script():
    assert f"\n{table([10, 1000, 50_000], Job())}\n" in (DOCS / "rollout.md").read_text()


@pytest.mark.parametrize("measured", MEASURED, ids=lambda measured: measured.text)
def test_each_rate_is_in_its_section_of_the_lab(measured):
    title = re.escape(measured.section)
    section = re.search(rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", LAB, re.DOTALL | re.MULTILINE)
    assert section is not None
    assert measured.text in section[1]


def test_each_job_is_in_one_wave_and_a_wave_is_copied_in_a_night():
    need = Need(3000, Job(files=100, bytes=40_000 * MB, changed=0.001))
    assert need.first_copy > NIGHT
    assert sum(need.waves) == 3000
    assert max(need.waves) <= 3000 * NIGHT / need.first_copy
    assert need.waves[:2] == [10, 100]


def test_more_jobs_need_more_of_everything():
    few, many = Need(1000, Job()), Need(50_000, Job())
    for name in ("services", "hosts", "link", "calls", "first_copy", "memory", "bytes_per_second"):
        assert getattr(few, name) < getattr(many, name), name


@pytest.mark.parametrize(
    ("job", "services"),
    [
        (Job(files=1, bytes=1.0, interval=1.0), 65),  # 1,000 checkpoints a second, of 31 at most
        (Job(bytes=1000 * MB, interval=100.0, changed=0.5), 71),  # 5 GB a second, of 141 MB at most
    ],
)
def test_the_services_are_at_most_half_busy_with_checkpoints_and_with_bytes(job, services):
    assert Need(1000, job).services == services
