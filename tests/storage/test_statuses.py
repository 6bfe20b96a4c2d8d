"""What listings hold of many files."""

from cpreplicate.storage.statuses import new_listing


def test_a_listing_of_many_files_keeps_the_tags_of_the_first_ones_only():
    listed = new_listing("s3://bucket/job/shared")
    for number in range(20_000):
        listed.add(f"{number}", 1, 2.0, tag=f"tag-{number}")
    assert listed.status(9_999).tag == "tag-9999"
    assert listed.status(19_999).tag is None
    assert len(listed.names) == 20_000
