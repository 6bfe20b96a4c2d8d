"""What the exceptions of the object stores' clients become: what will not pass is not retried."""

import errno

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, ServiceRequestError
from botocore.exceptions import ClientError
from gcsfs.retry import HttpError

from cpreplicate.storage.backends.objects.errors import translated_errors
from cpreplicate.storage.base import NoBucket, Transient


def of_s3(code, status):
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "PutObject")


def of_azure(kind, status, code):
    error = kind(code)
    error.status_code, error.error_code = status, code
    return error


def of_google(status, message):
    return HttpError({"code": status, "message": message})


def translated(error, is_write=False):
    with pytest.raises(Exception) as raised, translated_errors("s3://bucket/key", is_write):  # noqa: PT011
        raise error
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        of_s3("AccessDenied", 403),
        of_s3("XAdminUserNotFound", 404),
        of_azure(HttpResponseError, 403, "AuthenticationFailed"),
        of_google(401, "Invalid Credentials"),
        OSError("Forbidden: https://storage.googleapis.com/b/a\nno access"),
    ],
    ids=repr,
)
def test_credentials_that_are_refused_are_permanent(error):
    found = translated(error)
    assert isinstance(found, PermissionError)
    assert (found.errno, found.filename) == (errno.EACCES, "s3://bucket/key")


@pytest.mark.parametrize(
    "error",
    [
        of_s3("NoSuchBucket", 404),
        of_azure(ResourceNotFoundError, 404, "ContainerNotFound"),
        FileNotFoundError(errno.ENOENT, "No such container", "box"),
    ],
    ids=repr,
)
def test_a_missing_bucket_is_named(error):
    found = translated(error)
    assert isinstance(found, NoBucket)
    assert str(found) == "s3://bucket/key: the bucket does not exist"


def test_what_is_missing_when_an_object_is_created_is_its_bucket():
    error = FileNotFoundError("https://storage.googleapis.com/upload/storage/v1/b/bucket/o")
    assert not isinstance(translated(error), NoBucket)
    assert isinstance(translated(error, is_write=True), NoBucket)


@pytest.mark.parametrize(
    "error",
    [
        of_s3("SlowDown", 503),
        of_s3("RequestTimeout", 400),
        of_s3("NoSuchUpload", 404),
        of_azure(ServiceRequestError, None, "Cannot connect"),
        of_google(503, "try later"),
        of_google(403, "rateLimitExceeded"),
        aiohttp.ClientConnectionError("reset"),
        aiohttp.http_exceptions.ContentLengthError(message="cut"),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again(error):
    assert isinstance(translated(error, is_write=True), Transient)


@pytest.mark.parametrize(
    "error", [of_s3("AuthorizationHeaderMalformed", 400), of_s3("PermanentRedirect", 301)], ids=repr
)
def test_a_request_that_is_wrong_is_permanent(error):
    found = translated(error)
    assert not isinstance(found, Transient)
    assert found.errno == errno.EINVAL
