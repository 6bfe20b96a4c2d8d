"""The wheel: built, also from the sdist, and installed in an empty environment."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import click
import pytest

from cpreplicate import __version__
from cpreplicate.cli.commands.replication import cli
from scripts.wheel import sbom
from tests.scripts.test_man_pages import PAGES
from tests.support import parts
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(click.__file__).parents[1]  # of the tests: the environment has the wheel alone
# the tests of this file share what it builds
pytestmark = [pytest.mark.xdist_group("wheel"), *parts.NIGHTLY]


def build(root, target, directory):
    temporary = directory.with_name("temporary")
    temporary.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "TMPDIR": str(temporary)}
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", directory]
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [built] = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, "wheel", tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment in which only the wheel is installed."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", directory / "bin" / "python"]
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    return directory


def of_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: archive.read(each) for each in archive.infolist()}


def test_a_man_page_of_each_command_is_installed_where_man_looks(environment):
    installed = {path.name: path.read_text() for path in environment.glob("share/man/man1/*")}
    assert installed == PAGES
    for name in cli.commands:
        assert f"cpreplicate-{name}.1" in installed


def test_the_console_script_is_installed(environment):
    done = subprocess.run(
        [environment / "bin" / "cpreplicate", "--version"],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
    )
    assert __version__ in done.stdout, done.stderr


def test_the_bill_of_materials_lists_what_the_wheel_requires(environment):
    [path] = environment.glob("lib/python*/site-packages/cpreplicate-*.dist-info/sboms/*")
    assert path.name == "cpreplicate.cdx.json"
    found = json.loads(path.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["purl"] == f"pkg:pypi/cpreplicate@{__version__}"
    properties = [
        {each["name"]: each["value"] for each in component["properties"]}
        for component in found["components"]
        if "properties" in component
    ]
    requirements = {each["cpreplicate:requirement"] for each in properties}
    metadata = (path.parents[1] / "METADATA").read_text().splitlines()
    required = {line.split(": ")[1] for line in metadata if line.startswith("Requires-Dist: ")}
    assert {each.partition(";")[0].strip() for each in requirements} == {
        each.partition(";")[0].strip() for each in required
    }
    references = {component["bom-ref"] for component in found["components"]}
    assert set(found["dependencies"][0]["dependsOn"]) == references
    assert len(references) == len(found["components"])


def test_the_bill_has_the_version_with_which_a_requirement_is_tested():
    assert sbom.pinned("a_b==1.2\nc==3 ; python_version < '3.11'\n# d==4\n") == {
        "a-b": "1.2",
        "c": "3",
    }
    bill = sbom.bill("x", "1", "MIT", ["A.b>=1"], {"s3": ["c"]}, {"a-b": "1.2"}, 0.0)
    first, second = bill["components"]
    assert (first["purl"], first["scope"]) == ("pkg:pypi/a-b", "required")
    assert {"name": "cpreplicate:tested-version", "value": "1.2"} in first["properties"]
    assert (second["scope"], "version" in second) == ("optional", False)


def test_the_bill_has_the_version_of_what_the_wheel_bundles():
    notice = (
        "cpreplicate\nApache License, Version 2.0\n\nIt contains, in static/vendor:\n\n"
        "Chart.js 4.6.1 (https://www.chartjs.org)\nCopyright 2014-2026 Its authors\n"
        "MIT License; see chart.LICENSE.md\n\n"
        "@kurkle/color 0.3.2 (https://example.org/color#readme), as a part of Chart.js\n"
        "Copyright 2023 Its author\nMIT License\n"
    )
    found = sbom.bundled(notice)
    assert [each["purl"] for each in found] == [
        "pkg:npm/chart.js@4.6.1",
        "pkg:npm/%40kurkle/color@0.3.2",
    ]
    assert found[0]["licenses"] == [{"license": {"id": "MIT"}}]
    bill = sbom.bill("x", "1", "MIT", ["click"], {}, {}, 0.0, found)
    assert [each.get("version") for each in bill["components"]] == ["0.3.2", "4.6.1", None]


def test_all_that_notice_lists_is_in_the_bill(wheel):
    [text] = [data for name, data in of_wheel(wheel).items() if name.endswith(".cdx.json")]
    versions = {each["name"]: each.get("version") for each in json.loads(text)["components"]}
    entries = re.findall(r"^(\S+) (\d\S*) \(http", (ROOT / "NOTICE").read_text(), re.MULTILINE)
    assert dict(entries).items() <= versions.items()


def test_the_sdist_has_all_that_it_takes_to_build_the_same_wheel(wheel, tmp_path):
    sdist = build(ROOT, "sdist", tmp_path / "sdist")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    again = build(tmp_path / sdist.name.removesuffix(".tar.gz"), "wheel", tmp_path / "again")
    assert again.read_bytes() == wheel.read_bytes()


def test_what_is_generated_is_not_left_behind(wheel):
    assert list((wheel.parents[1] / "temporary").iterdir()) == []
    assert not list(ROOT.glob("*.1"))


PROGRAM = """
from pathlib import Path

from cpreplicate import (
    Cancellation,
    Checkpoint,
    FleetReport,
    Place,
    Promotion,
    Report,
    Retention,
    SyncOptions,
    fleet,
    jobs_below,
    list_points,
    plan,
    promote,
    status,
    sweep,
    sync,
    to_dict,
    unseal,
    verify,
)

source = Checkpoint("hdfs://dcA/flink/checkpoints/55d1", conf_dir="/etc/hadoop/dcA")
target = Place("s3://replicas/flink", options={"endpoint_url": "https://s3"})
options = SyncOptions(keep=2, remap={"hdfs://old": "hdfs://dcA"}, bandwidth=5e8)


def replicate(cancellation: Cancellation) -> bool:
    if plan(source, target, options).plan.empty:
        return False
    report = sync(source, target, options, on_progress=lambda seen: print(seen.bytes))
    replica = Place(report.plan.replica, options=target.options)
    return verify(replica, cancellation=cancellation).restorable


points = SyncOptions(keep=Retention(last=3, within="24h"), bandwidth="500MB/s", max_delete="20%")
many: FleetReport = fleet(jobs_below(Path("/a"), "/b", points))
one: Report = plan("/a/b", Path("/c"))
document = to_dict(one)["copy"]["files"], sweep(Path("/c/b"), min_age="7d").bytes
promoted: Promotion = promote("/c/b", max_lag="15m")
unseal("/c/b", no_job_uses_it=promoted.is_promoted)
names = [point.checkpoint for each in list_points("/c").replicas for point in each.points]
lags: list[float | None] = [row.lag(0.0) for row in status(target).replicas]
"""


def checked(program, environment, directory):
    """Return what mypy prints of a program, with the types of the packages in the environment."""
    (directory / "program.py").write_text(program)
    python = f"--python-executable={environment / 'bin' / 'python'}"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", python, "program.py"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)


def test_an_outside_program_is_checked_by_mypy_strict_against_the_wheel(environment, tmp_path):
    done = checked(PROGRAM, environment, tmp_path)
    assert done.returncode == 0, done.stdout
    done = checked(PROGRAM.replace("keep=2", "keep='two'"), environment, tmp_path)
    assert "arg-type" in done.stdout


REPLICATE = """
import sys

import cpreplicate
from cpreplicate import Checkpoint, Place, plan, sync, verify

source, target = Checkpoint(sys.argv[1]), Place(sys.argv[2])
copies = len(plan(source, target).plan.copies)
report = sync(source, target)
print(cpreplicate.__file__, copies, report.committed, verify(Place(report.plan.replica)).restorable)
"""


def test_an_outside_program_replicates_with_the_wheel(environment, tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    done = subprocess.run(
        [environment / "bin" / "python", "-c", REPLICATE, tmp_path / "dcA" / JOB, tmp_path / "dcB"],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    [package] = environment.glob("lib/python*/site-packages/cpreplicate/__init__.py")
    assert done.stdout == f"{package} {len(FILES)} True True\n", done.stderr
