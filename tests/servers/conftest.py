"""Servers that several files of this folder ask for."""

from __future__ import annotations

import pytest

from tests.support.standalone import QUICKLY, StandaloneCluster


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture
def cluster(standing, monkeypatch):
    """Two workers without fault and without work."""
    for name, value in {**standing.environment, **QUICKLY}.items():
        monkeypatch.setenv(name, value)
    standing.repair()
    return standing
