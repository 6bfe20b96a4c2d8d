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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'replicate'"):
        cpreplicate.replicate  # noqa: B018  # the access is what is tried
