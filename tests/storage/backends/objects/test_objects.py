"""What is particular to the client of S3: how long it waits."""

from cpreplicate.storage.backends.objects.objects import ObjectStorage


def patience(filesystem):
    return filesystem.config_kwargs["read_timeout"]


def test_a_copy_within_the_service_is_waited_for_longer_than_other_calls():
    """Not every service sends a space now and then while it copies."""
    options = {"endpoint_url": "http://127.0.0.1:1", "key": "a", "secret": "b"}
    storage = ObjectStorage("s3://bucket", options, deadline=2.0)
    assert (patience(storage._fs), patience(storage._copier)) == (2.0, 60.0)
    storage = ObjectStorage("s3://bucket", options, deadline=90.0)
    assert patience(storage._copier) == 90.0
