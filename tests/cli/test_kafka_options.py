"""The options of a Kafka: what does not go together is refused before anything is read."""

from __future__ import annotations

import pytest

from tests.support.commandline import printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["promote", "--same-kafka"], "--same-kafka needs --kafka"),
        (["promote", "--not-read", "op"], "--not-read needs --kafka"),
        (["promote", "--kafka-conf", "f"], "--kafka-conf needs --kafka"),
        (["status", "--kafka-conf", "f"], "--kafka-conf needs --kafka"),
        (["doctor", "--same-kafka", "/a"], "--same-kafka needs --kafka"),
        (["promote", "--kafka", "b:9092", "--kafka-conf", "/no/file"], "/no/file cannot be read"),
    ],
)
def test_a_mistake_is_a_usage_error(words, message, tmp_path):
    ended = printed(*words, tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
