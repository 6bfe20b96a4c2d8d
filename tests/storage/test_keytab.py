"""The keytab of a side on this host: which file it is, and whether it fits the principal."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import NotAuthenticated
from cpreplicate.storage.keytab import Keytab, keytab_of

PLACE = "hdfs://dcA"
SECURE = {"hadoop.security.authentication": "kerberos"}


def counted(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def entry(name: str, realm: str) -> bytes:
    """Return an entry of a keytab with a key of zeros."""
    parts = name.split("/")
    names = b"".join(map(counted, (realm, *parts)))
    body = (
        struct.pack(">H", len(parts)) + names + struct.pack(">IIBHH", 1, 0, 1, 18, 32) + bytes(32)
    )
    return struct.pack(">i", len(body)) + body


def write(path: Path, *entries: bytes) -> Path:
    path.write_bytes(b"\x05\x02" + b"".join(entries))
    return path


@pytest.fixture
def keytab(tmp_path: Path) -> Path:
    hole = struct.pack(">i", -5) + bytes(5)
    return write(tmp_path / "a.keytab", entry("flink", "A.TEST"), hole, entry("hdfs/nn1", "A.TEST"))


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("flink@A.TEST", "flink@A.TEST"),
        ("flink", "flink@A.TEST"),
        ("hdfs/nn1@A.TEST", "hdfs/nn1@A.TEST"),
    ],
)
def test_a_principal_gets_the_realm_of_its_key(keytab: Path, given: str, whole: str) -> None:
    found = Keytab(given, str(keytab)).of_this_host(PLACE)
    assert found == Keytab(whole, str(keytab))


def test_a_file_of_its_name_in_the_working_directory_is_taken_where_the_path_has_none(
    keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(keytab.parent)
    found = Keytab("flink", f"/nowhere/{keytab.name}").of_this_host(PLACE)
    assert found.path == str(keytab)


def test_a_keytab_that_is_missing_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(NotAuthenticated, match=r"not on this host.*spark\.files") as raised:
        Keytab("flink", str(tmp_path / "none")).of_this_host(PLACE)
    assert raised.value.exit_code == 7


def test_a_principal_without_a_key_is_reported_with_those_that_have_one(keytab: Path) -> None:
    with pytest.raises(NotAuthenticated, match=r"no key for bob@A.TEST, but for flink@A.TEST"):
        Keytab("bob@A.TEST", str(keytab)).of_this_host(PLACE)


@pytest.mark.parametrize("content", [b"", b"\x05\x02\x00", b"\x05\x02\x00\x00\x00\x09abc", b"text"])
def test_a_file_that_is_no_keytab_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.keytab"
    path.write_bytes(content)
    with pytest.raises(NotAuthenticated, match=r"not a keytab|no key for"):
        Keytab("flink", str(path)).of_this_host(PLACE)


def test_a_keytab_without_a_secure_configuration_is_a_mistake(keytab: Path) -> None:
    with pytest.raises(UsageError, match=r"hadoop\.security\.authentication is not kerberos"):
        keytab_of(PLACE, {}, "flink", str(keytab))
    assert keytab_of(PLACE, SECURE, "flink", str(keytab)) is not None
    assert keytab_of(PLACE, {}, None, None) is None
