"""A user of S3 whose rights begin at TARGET_ROOT: S3 answers 403, not 404, for the rest."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.s3 import FaultyProxy, S3Server, side_options

pytestmark = pytest.mark.s3

BUCKET, PLACE = "rights", "flink/replicas/"
DENIED = "403 AccessDenied"


def denied(head: str) -> str | None:
    """Return what S3 answers to a user who may only list, read and write below a place."""
    path = urlsplit(head.split(" ", 2)[1])
    key = unquote(path.path).removeprefix(f"/{BUCKET}").lstrip("/")
    place = key or parse_qs(path.query).get("prefix", [""])[0]
    return None if place.startswith(PLACE) else DENIED


def test_rights_below_the_target_root_suffice_and_little_else_is_asked(
    s3: S3Server, tmp_path: Path
) -> None:
    target = f"{s3.make_bucket(BUCKET)}/{PLACE.rstrip('/')}"
    write_checkpoint(tmp_path, 1, {"shared/a": 1000})
    with FaultyProxy(s3.endpoint) as proxy:
        refused: list[str] = []

        def rule(head: str) -> str | None:
            answer = denied(head)
            refused.extend([head.partition("\r\n")[0]] * bool(answer))
            return answer

        proxy.answer(rule)
        words = [
            f"--target-conf={key}={value}" for key, value in side_options(proxy.endpoint).items()
        ]
        source = tmp_path / JOB
        assert run("doctor", source, target, *words).code == 0
        assert run("sync", source, target, *words).code == 0
        write_checkpoint(tmp_path, 2, {"shared/b": 2000})
        assert run("sync", source, target, *words).code == 0
        assert run("doctor", source, target, *words).code == 0
        assert run("status", target, *words).code == 0
        assert run("promote", f"{target}/{JOB}", *words).code == 0
    # `doctor` asks for settings of the bucket, which it can do without
    named = ("/rights/flink/replicas ", "prefix=flink%2freplicas&", "?versioning ", "?object-lock ")
    assert [line for line in refused if not any(each in line for each in named)] == []


def test_an_object_that_may_not_be_read_is_not_taken_for_none(s3: S3Server) -> None:
    from cpreplicate.storage import Side

    bucket = s3.make_bucket("unreadable")
    with FaultyProxy(s3.endpoint) as proxy:
        side = Side((("s3:", tuple(side_options(proxy.endpoint).items())),), retry_for=0)
        storage = side.storage(bucket)
        storage.put(f"{bucket}/a/lease", lambda: [b"x"])
        proxy.answer(lambda head: DENIED if head.startswith("head ") else None)
        with pytest.raises(PermissionError):
            storage.stat(f"{bucket}/a/lease")
