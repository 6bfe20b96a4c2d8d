"""What clients of object stores read of their services."""

from __future__ import annotations

import pytest
from botocore.utils import parse_timestamp

from cpreplicate.storage.backends.objects.clients import client, moment
from tests.support.s3 import side_options


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-28T20:03:58.000Z",
        "2026-11-28T20:03:58Z",
        "2026-11-28T20:03:58.123Z",
        "2026-11-28T20:03:58.1Z",
        "2026-11-28T20:03:58.123456Z",
        "2026-11-28T20:03:58.123456789Z",
        "2026-11-28T20:03:58.000+02:00",
        "Sat, 28 Nov 2026 20:03:58 GMT",
        "20261128T200358Z",
        "1795896238",
        1795896238,
        1795896238.5,
    ],
)
def test_a_time_of_a_service_is_read_as_botocore_reads_it(text: object) -> None:
    assert moment(text) == parse_timestamp(text)


@pytest.mark.parametrize("text", ["Z", "", "yesterday", None])
def test_what_is_no_time_is_refused_as_botocore_refuses_it(text: object) -> None:
    with pytest.raises((ValueError, TypeError)) as ours:
        moment(text)
    with pytest.raises((ValueError, TypeError)) as theirs:
        parse_timestamp(text)
    assert str(ours.value) == str(theirs.value)


def test_listings_of_s3_are_read_so_unless_an_option_is_one_of_the_session() -> None:
    options = side_options("http://127.0.0.1:1")
    factory = client("s3", options, 1.0).session.get_component("response_parser_factory")
    assert factory.create_parser("rest-xml")._timestamp_parser is moment
    assert client("s3", {**options, "profile": "other"}, 1.0).session is None
