#!/bin/sh
# Packs what Spark executors need into an archive for spark.archives: docs/clusters.md describes its use.
#
#   sh scripts/executor_archive.sh [ARCHIVE [PACKAGE...]]        default: environment.tar.gz
#
# Of the environment of PYTHON (default: .venv/bin/python), which runs cpreplicate: cpreplicate, what it depends on in the
# versions that are installed there, storages' packages included, and each PACKAGE with what it depends on. Not pyspark: Spark
# brings its own. Nothing is downloaded. Executors need a Python of the same version, python3.N on their PATH or where
# CPREPLICATE_PYTHON names, an operating system and a processor as here, and no packages.
set -eu
case "${1:-}" in -*) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
python=${PYTHON:-$(dirname "$0")/../.venv/bin/python}
archive=${1:-environment.tar.gz}
[ $# -eq 0 ] || shift
"$python" - "$archive" "$@" <<'END'
import io
import os
import pathlib
import sys
import tarfile
from importlib import metadata

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

WRAPPER = """#!/bin/sh
# The executor's own Python with the packages of this archive; Spark's come first.
here=$(cd "$(dirname "$0")/.." && pwd)
python=${CPREPLICATE_PYTHON:-python%(version)s}
command -v "$python" >/dev/null || { echo "$0: no $python on $(hostname): install it, or set CPREPLICATE_PYTHON" >&2; exit 127; }
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/packages"
exec "$python" "$@"
"""
FROM_SPARK = {"pyspark", "py4j"}


def needed(names):
    """Distributions by name; of cpreplicate's extras what is installed."""
    found, left = {}, [(name, None) for name in names]
    while left:
        name, extras = left.pop()
        if (key := canonicalize_name(name)) in FROM_SPARK or (key, extras) in found:
            continue
        try:
            found[key, extras] = distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if extras is None:
                sys.exit(f"{name} is not installed in {sys.prefix}")
            continue  # of another platform, or of a storage that is not used
        if extras is None:
            extras = tuple(distribution.metadata.get_all("Provides-Extra") or ()) if key == "cpreplicate" else ()
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in ("", *extras)):
                left.append((requirement.name, tuple(sorted(requirement.extras))))
    return {key: distribution for (key, _), distribution in sorted(found.items(), key=str)}


def files(key, distribution):
    """Each file of it: where it is, and its name below the packages."""
    if distribution.files is None:
        sys.exit(f"{key} was not installed by pip: which files are its own is not known")
    for file in distribution.files:
        if file.parts[0] != ".." and file.suffix != ".pth" and (place := file.locate()).exists():
            yield place, file.as_posix()
    if key == "cpreplicate":  # its own are elsewhere where it is installed for development
        import cpreplicate

        package = pathlib.Path(cpreplicate.__file__).parent
        yield from ((place, f"cpreplicate/{place.relative_to(package).as_posix()}") for place in package.rglob("*.py"))


archive, version = pathlib.Path(sys.argv[1]), f"{sys.version_info[0]}.{sys.version_info[1]}"
half = archive.with_name(f".{archive.name}.{os.getpid()}")
distributions = needed(["cpreplicate", *sys.argv[2:]])
try:
    with tarfile.open(half, "w:gz", compresslevel=6) as tar:
        text = (WRAPPER % {"version": version}).encode()
        wrapper = tarfile.TarInfo("bin/python")
        wrapper.size, wrapper.mode = len(text), 0o755
        tar.addfile(wrapper, io.BytesIO(text))
        packed = {name: place for key, each in distributions.items() for place, name in files(key, each)}
        for name, place in sorted(packed.items()):
            tar.add(place, f"packages/{name}", recursive=False)
    half.replace(archive)
finally:
    half.unlink(missing_ok=True)
print(*(f"{key}=={each.version}" for key, each in distributions.items()), sep="\n")
print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB, for python{version}")
END
