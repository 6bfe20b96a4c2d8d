"""Each option of S3 changes what goes over the wire, by both clients; or it is refused by name."""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import ssl

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side
from cpreplicate.storage.backends.objects import s3_options
from cpreplicate.storage.backends.objects.clients import OPTIONS, constructor_options
from tests.support.certificates import self_signed
from tests.support.s3 import FaultyProxy, S3Server, side_options

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="  # 32 bytes
KMS = "arn:aws:kms:us-east-1:1:key/x"
ENCRYPTED = "x-amz-server-side-encryption"
WIRE = [
    ({"encryption": "SSE-S3"}, [f"{ENCRYPTED}: aes256"]),
    ({"fs.s3a.encryption.algorithm": "AES256"}, [f"{ENCRYPTED}: aes256"]),
    ({"s3.server-side-encryption-algorithm": "SSE-S3"}, [f"{ENCRYPTED}: aes256"]),
    (
        {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": KMS},
        [f"{ENCRYPTED}: aws:kms", f"{ENCRYPTED}-aws-kms-key-id: {KMS}"],
    ),
    ({"encryption": "DSSE-KMS"}, [f"{ENCRYPTED}: aws:kms:dsse"]),
    (
        {"encryption": "SSE-C", "encryption_key": KEY},
        [f"{ENCRYPTED}-customer-algorithm: aes256", f"{ENCRYPTED}-customer-key: {KEY.lower()}"],
    ),
    ({"requester_pays": "true"}, ["x-amz-request-payer: requester"]),
    ({"fs.s3a.requester.pays.enabled": "true"}, ["x-amz-request-payer: requester"]),
    (
        {"s3_additional_kwargs": '{"StorageClass": "STANDARD_IA"}'},
        ["x-amz-storage-class: standard_ia"],
    ),
    ({"fs.s3a.bucket.wire.encryption.algorithm": "AES256"}, [f"{ENCRYPTED}: aes256"]),
]


def storage_of(endpoint, options):
    side = Side((("s3:", tuple({**side_options(endpoint), **options}.items())),), retry_for=0)
    return side.storage("s3://wire")


@pytest.fixture
def proxy(s3: S3Server):
    s3.make_bucket("wire")
    with FaultyProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize(("options", "headers"), WIRE, ids=[str(each) for each, _ in WIRE])
def test_an_option_is_in_each_put_of_both_clients(proxy, options, headers):
    storage = storage_of(proxy.endpoint, options)
    storage.put("s3://wire/quick", lambda: [b"x"])
    storage.create_exclusive("s3://wire/exclusive", b"x")
    puts = [head for head in proxy.heads if head.startswith("put ")]
    assert len(puts) == 2
    for head in puts:
        assert [each for each in headers if f"\r\n{each}\r\n" not in head] == []
    storage.delete("s3://wire/exclusive")


SENT = [  # and what the head of a request has by it, or by its other value
    ({"key": "mine"}, "credential=mine/", None),
    ({"token": "session"}, "x-amz-security-token: session\r\n", None),
    ({"region": "eu-west-7"}, "/eu-west-7/s3/aws4_request", None),
    ({"anon": "true"}, None, "authorization: "),
    ({"response_checksum_validation": "when_supported"}, "x-amz-checksum-mode: enabled", None),
    ({"response_checksum_validation": "when_required"}, None, "x-amz-checksum-mode"),
    ({"addressing_style": "path"}, " /wire/sent ", None),
    ({"addressing_style": "virtual"}, " /sent ", None),
    ({"fs.s3a.path.style.access": "false"}, "host: wire.localhost:", None),
]


@pytest.fixture
def every_localhost(monkeypatch):
    """A bucket in the name of a host is found, whatever the resolver of the machine knows."""
    resolve = socket.getaddrinfo

    def resolved(host, *arguments, **named):
        return resolve("127.0.0.1" if "localhost" in str(host) else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.mark.usefixtures("every_localhost")
@pytest.mark.parametrize(("options", "has", "lacks"), SENT, ids=str)
def test_an_option_is_in_each_request(proxy, options, has, lacks):
    """A host with a number for a name never has a bucket in it."""
    storage = storage_of(proxy.endpoint.replace("127.0.0.1", "localhost"), options)
    with contextlib.suppress(OSError):  # the server knows no other address
        storage.put("s3://wire/sent", lambda: [b"x"])
        storage.read("s3://wire/sent")
    assert proxy.heads
    assert has is None or any(has in head for head in proxy.heads)
    assert lacks is None or not any(lacks in head for head in proxy.heads)


def test_a_secret_decides_about_the_signature(proxy, monkeypatch):
    now = datetime.datetime.now(datetime.timezone.utc)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now)
    signatures = []
    for secret in ("one", "one", "other"):
        proxy.heal()
        assert storage_of(proxy.endpoint, {"secret": secret}).stat("s3://wire/none") is None
        signatures.append(re.findall("signature=([0-9a-f]+)", proxy.heads[0]))
    one, same, other = signatures
    assert one == same != other


def test_without_ssl_an_endpoint_without_a_scheme_is_asked_by_http(proxy):
    endpoint = proxy.endpoint.removeprefix("http://")
    assert storage_of(endpoint, {"use_ssl": "false"}).list("s3://wire/none") == []
    assert proxy.requests


def test_each_option_of_s3_has_a_row_here():
    of_tests = {"endpoint_url", "secret", "use_ssl", "request_checksum_calculation"}
    of_rows = {name for options, *_ in (*WIRE, *SENT) for name in options if "." not in name}
    assert of_rows | of_tests == {*OPTIONS["s3"]}


@pytest.mark.parametrize("protocol", ["gs", "abfs"])
def test_each_option_of_another_object_store_is_one_of_its_client(protocol):
    assert constructor_options(protocol).keys() >= {*OPTIONS[protocol]}


@pytest.mark.parametrize("unused", ["max_concurrency", "default_block_size"])
def test_a_parameter_of_s3fs_that_nothing_uses_is_no_option(unused):
    with pytest.raises(UsageError, match=f"unknown option '{unused}'"):
        storage_of("http://127.0.0.1:1", {unused: "4"})


@pytest.mark.parametrize(
    ("mode", "has_checksum"), [("when_required", False), ("when_supported", True)]
)
def test_the_checksums_of_puts_are_those_that_are_asked_for(proxy, mode, has_checksum):
    storage = storage_of(proxy.endpoint, {"request_checksum_calculation": mode})
    storage.put("s3://wire/a", lambda: [b"x"], replace=False)
    storage.put("s3://wire/sent", lambda: [b"x"])
    puts = [head for head in proxy.heads if head.startswith("put ")]
    assert ["x-amz-checksum-crc32: " in head for head in puts] == [has_checksum] * 2
    storage.delete("s3://wire/a")


def test_by_https_puts_to_other_services_have_their_checksum_in_front(s3, tmp_path, monkeypatch):
    """Many know no checksum behind the content, as botocore sends it by HTTPS only."""
    s3.make_bucket("wire")
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FaultyProxy(s3.endpoint, tls=context) as proxy:
        proxy.answer(lambda head: "411 MissingContentLength" if "x-amz-trailer" in head else None)
        endpoint = proxy.endpoint.replace("http://127.0.0.1", "https://localhost")
        storage = storage_of(endpoint, {})
        assert storage.create_exclusive("s3://wire/https", b"x")
        assert any("\r\nx-amz-checksum-crc32: " in head for head in proxy.heads)
        storage.delete("s3://wire/https")
        trailing = storage_of(endpoint, {"request_checksum_calculation": "when_supported"})
        with pytest.raises(OSError, match="the service refuses the request"):
            trailing.create_exclusive("s3://wire/https", b"x")


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"fs.s3a.path.style.access": "true"}, {"addressing_style": "path"}),
        ({"s3.path-style-access": "true"}, {"addressing_style": "path"}),
        ({"fs.s3a.path.style.access": "false"}, {"addressing_style": "virtual"}),
        (
            {"fs.s3a.endpoint": "h:1", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint_url": "http://h:1"},
        ),
        ({"fs.s3a.endpoint": "h:1"}, {"endpoint_url": "https://h:1"}),
        ({"s3.access-key": "a", "s3.secret-key": "b"}, {"key": "a", "secret": "b"}),
        ({"fs.s3a.access.key": "a", "fs.s3a.bucket.b.access.key": "c"}, {"key": "c"}),
        ({"fs.s3a.bucket.other.access.key": "c"}, {}),
        (
            {"fs.s3a.aws.credentials.provider": "x.y.AnonymousAWSCredentialsProvider"},
            {"anon": "true"},
        ),
        ({"fs.s3a.threads.max": "64", "fs.s3a.proxy.host": "", "dfs.replication": "2"}, {}),
    ],
    ids=str,
)
def test_properties_of_hadoop_and_flink_mean_what_they_mean_there(options, own):
    assert s3_options.own_options(options, "b") == own


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fs.s3a.encryption.algorithm": "CSE-KMS"}, "SSE-S3, SSE-KMS, DSSE-KMS, SSE-C"),
        ({"fs.s3a.encryption.key": "x"}, "without encryption"),
        ({"encryption": "SSE-C"}, "32 bytes in base64"),
        ({"encryption": "SSE-S3", "encryption_key": "x"}, "has no effect"),
        ({"fs.s3a.encryption.algoritm": "AES256"}, "Did you mean fs.s3a.encryption.algorithm"),
        ({"fs.s3a.encryption.context": "a=b"}, "fs.s3a.encryption.context has no effect here"),
        ({"fs.s3a.acl.default": "Private"}, "s3_additional_kwargs"),
        ({"fs.s3a.proxy.host": "p"}, "HTTPS_PROXY"),
        ({"fs.s3a.aws.credentials.provider": "org.example.Own"}, "Own, a class of Java"),
        ({"addressing_style": "paht"}, "must be path or virtual or auto"),
        ({"request_checksum_calculation": "never"}, "when_supported or when_required"),
        ({"s3_additional_kwargs": "ACL=private"}, "JSON object"),
    ],
    ids=str,
)
def test_what_has_no_effect_is_refused_by_name(options, message):
    with pytest.raises(UsageError, match=message):
        s3_options.arguments(s3_options.own_options(options, "b"))


def test_what_doctor_shows_of_them_has_no_secret():
    own = {"encryption": "SSE-C", "encryption_key": KEY, "key": "a", "addressing_style": "path"}
    assert (
        s3_options.described(own) == "encryption SSE-C, encryption key ***, addressing style path"
    )
