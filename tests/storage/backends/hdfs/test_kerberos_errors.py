"""What the texts of MIT's library and of Java mean to an operator, and which are tried again."""

from __future__ import annotations

import errno

import pytest

from cpreplicate.storage import NotAuthenticated, Transient
from cpreplicate.storage.backends.hdfs.kerberos_errors import hint_about, raised_for_kerberos
from cpreplicate.storage.backends.native.errors import NativeErrors

URI = "hdfs://dcA/file"
SECURE = {"hadoop.security.authentication": "kerberos"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No Kerberos credentials available (default cache: x)", "Run kinit, set KRB5CCNAME"),
        ("Client cannot authenticate via:[TOKEN, KERBEROS]", "no valid Kerberos ticket in"),
        (
            "Minor code may provide more information: Ticket expired",
            "ticket has expired. Run kinit",
        ),
        ("Server krbtgt/C@A not found in Kerberos database", "(krbtgt/C@A). Correct the realm"),
        ("Client 'x@A' not found in Kerberos database", "the user's principal (x@A). Correct --so"),
        ("Cannot find KDC for realm C.TEST", "Add it under [realms]"),
        ("Clock skew too great", "Synchronise them with NTP"),
        ("Preauthentication failed", "Get a new keytab"),
        ('OperationFailed("Failed to load libgssapi_krb")', "Install libgssapi-krb5-2"),
        ("something new of Kerberos", "something new of Kerberos. See docs/kerberos.md"),
    ],
)
def test_a_reason_has_a_remedy_and_is_not_tried_again(text: str, words: str) -> None:
    raised = raised_for_kerberos(text, URI)
    assert isinstance(raised, NotAuthenticated)
    assert words in str(raised)
    assert str(raised).startswith(f"{URI}: ")
    assert raised.exit_code == 7


def test_a_kdc_that_cannot_be_reached_is_tried_again() -> None:
    raised = raised_for_kerberos("Cannot contact any KDC for realm 'A.TEST'", URI)
    assert isinstance(raised, Transient)
    assert "no KDC can be reached" in str(raised)


def test_the_debug_output_of_hdfs_native_is_not_shown() -> None:
    text = 'GSSAPIError(GssMajorCodes { raw: "0x000d0000" }, 2529638944, "Ticket expired")'
    raised = NativeErrors(SECURE, ()).translated(RuntimeError(text), URI)
    assert isinstance(raised, NotAuthenticated)
    assert raised.errno == errno.EACCES
    assert "GssMajorCodes" not in str(raised)


@pytest.mark.parametrize(
    ("options", "hinted"),
    [
        (SECURE, True),
        ({**SECURE, "dfs.data.transfer.protection": "privacy"}, False),
        ({}, False),
    ],
)
def test_a_setting_of_the_data_nodes_is_named_only_where_it_is_missing(
    options: dict[str, str], hinted: bool
) -> None:
    assert bool(hint_about("All DataNodes failed", options)) is hinted
