"""Tables of entries and members answer as mappings of them do."""

from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.ledger import LedgerEntry, LedgerTable, Member, MemberTable
from cpreplicate.core.path_columns import (
    texts,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/ab"), max_size=12)


TEXTS = st.lists(TEXT)


ENTRIES = st.dictionaries(
    TEXT,
    st.builds(LedgerEntry, st.integers(0, 9), st.none() | st.integers(0, 2**32 - 1), st.booleans()),
)


MEMBERS = st.dictionaries(
    TEXT,
    st.builds(
        Member,
        st.sampled_from(["packed/a", "packed/b"]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.none() | st.integers(0, 2**32 - 1),
    ),
)


@given(st.lists(ENTRIES, max_size=3), TEXTS)
def test_of_several_ledger_entries_for_a_path_the_last_counts(tables, asked):
    expected = {path: entry for table in tables for path, entry in table.items()}
    merged = LedgerTable.merged([LedgerTable.of(table) for table in tables])
    assert merged == expected
    nothing = LedgerEntry(-1, None, False)
    assert list(merged.at(texts(asked)).values()) == [expected.get(p, nothing) for p in asked]
    distrusted = {p: v._replace(crc32c=None) if p in asked else v for p, v in expected.items()}
    assert merged.distrusting(asked) == distrusted


@given(st.lists(MEMBERS, max_size=3), TEXTS)
def test_of_several_members_with_one_path_the_last_counts(tables, gone):
    expected = {path: member for table in tables for path, member in table.items()}
    merged = MemberTable.merged([MemberTable.of(table) for table in tables])
    assert merged == expected
    assert set(merged.used_packs) == {member.pack for member in expected.values()}
    kept = {path: member for path, member in expected.items() if path not in gone}
    assert merged.without(gone) == kept
