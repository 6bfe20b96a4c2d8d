"""What an import of the package offers."""

import subprocess
import sys

import pytest

import cpreplicate


def test_an_import_of_the_package_imports_only_its_version():
    program = "import sys, cpreplicate; print([m for m in sys.modules if 'cpreplicate.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['cpreplicate.version']\n"


def test_each_name_of_the_package_is_imported_when_it_is_used():
    for name in cpreplicate.__all__:
        assert getattr(cpreplicate, name) is not None


def test_the_names_of_the_package_are_listed_before_they_are_used():
    program = (
        "import cpreplicate; print([n for n in cpreplicate.__all__ if n not in dir(cpreplicate)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_errors_are_an_attribute_of_the_package():
    program = "import cpreplicate; print(cpreplicate.errors.LeaseHeld.exit_code)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "11\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'replicate'"):
        cpreplicate.replicate  # noqa: B018  # the access is what is tried
