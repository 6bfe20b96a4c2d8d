"""Each property of Hadoop that the documentation names has a test that shows its effect."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
NAMED = re.compile(r"`((?:dfs|fs|hadoop|ipc)\.(?!s3a)[\w.-]*\w)")
BACKENDS = "tests/storage/backends"
SERVERS = "tests/servers/test_options_hdfs.py"
JAVA = f"{BACKENDS}/jvm/test_hadoop.py"
WRITTEN = (SERVERS, "test_a_new_file_is_as_the_configuration_asks")
PAIR = (
    "tests/faults/test_silence.py",
    "test_a_pair_of_namenodes_is_used_although_the_first_one_is_silent",
)
SAME = (JAVA, "test_two_clusters_of_one_name_are_distinguished")
DEFAULT = (
    "tests/storage/test_sides.py",
    "test_a_path_without_a_cluster_is_of_the_default_filesystem",
)
WRONG = ("tests/kerberos/test_failures.py", "test_what_is_wrong_is_named_at_once")
PROTECTED = (
    "tests/kerberos/test_matrix.py",
    "test_both_clients_write_and_read_before_and_after_a_failover",
)
MIXED = (
    "tests/kerberos/test_clients.py",
    "test_a_secure_source_with_a_target_without_kerberos",
)
ROWS = {  # the file and the name of each test
    "dfs.blocksize": [WRITTEN],
    "dfs.client.socket-timeout": [
        (SERVERS, "test_the_timeout_of_data_is_that_of_hadoops_client"),
    ],
    "dfs.data.transfer.protection": [WRONG, PROTECTED],
    "dfs.encrypt.data.transfer.cipher.suites": [PROTECTED],
    "dfs.ha.namenodes.NAME": [PAIR, SAME],
    "dfs.namenode.kerberos.principal": [WRONG],
    "dfs.namenode.rpc-address.NAME.NODE": [PAIR, SAME],
    "dfs.replication": [WRITTEN],
    "fs.default.name": [DEFAULT],
    "fs.defaultFS": [DEFAULT],
    "fs.permissions.umask-mode": [WRITTEN],
    "fs.trash.interval": [
        ("tests/servers/test_doctor_hdfs.py", "test_the_trash_is_reported_with_what_it_means"),
    ],
    "fs.viewfs.mounttable.NAME": [
        (SERVERS, "test_a_view_of_one_cluster_is_written_by_hadoops_client"),
        (
            SERVERS,
            "test_a_view_by_regular_expressions_is_read_by_hadoops_client_and_not_written",
        ),
        (JAVA, "test_a_view_over_two_clusters_is_written_by_atomic_renames"),
        (
            f"{BACKENDS}/hdfs/test_written.py",
            "test_a_view_without_a_fallback_has_nothing_beside_its_links",
        ),
        (
            "tests/storage/test_conformance.py",
            "test_what_is_put_is_read_listed_and_deleted_under_its_literal_name",
        ),
    ],
    "hadoop.security.authentication": [WRONG],
    "hadoop.user.name": [
        WRITTEN,
        (f"{BACKENDS}/web/test_webhdfs.py", "test_each_request_carries_the_identity"),
    ],
    "ipc.client.fallback-to-simple-auth-allowed": [MIXED],
    "ipc.client.rpc-timeout.ms": [
        (SERVERS, "test_the_timeout_of_calls_is_that_of_hadoops_client"),
    ],
}
OF_SERVERS = (
    "dfs.encrypt.data.transfer",
    "hadoop.http.",
    "hadoop.proxyuser",
    "hadoop.security.auth_to_local",
)


def test_each_property_that_is_documented_has_a_row():
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    named = {name for name in NAMED.findall(pages) if name not in OF_SERVERS}
    assert {name for name in named if not name.startswith(OF_SERVERS[1:])} == ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_tests_that_are_there_and_give_the_property(name):
    written = name.partition(".NAME")[0].replace(".", "(?:\\.|__)")
    for file, test in ROWS[name]:
        text = (ROOT / file).read_text()
        assert f"\ndef {test}(" in text
        assert re.search(written, text)
