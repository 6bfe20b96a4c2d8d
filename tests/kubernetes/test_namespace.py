"""What goes wrong with Kubernetes is an error of ours. `make try-kubernetes` has a server."""

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from cpreplicate.errors import CpreplicateError, Refused, UsageError
from cpreplicate.kubernetes import Namespace, connect


@pytest.fixture
def _kubeconfig(tmp_path, monkeypatch):
    """A kubeconfig of a server that does not listen."""
    path = tmp_path / "kubeconfig"
    named = {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path.write_text(yaml.safe_dump({"current-context": "a", **named}))
    monkeypatch.setenv("KUBECONFIG", str(path))


@pytest.mark.usefixtures("_kubeconfig")
def test_a_server_that_cannot_be_reached_is_an_error_without_the_token():
    namespace = connect("flink")
    for call in (
        lambda: namespace.listed("a=b"),
        lambda: namespace.create({"metadata": {"name": "x"}}),
        lambda: namespace.delete("x", "uid"),
    ):
        with pytest.raises(CpreplicateError, match="does not answer") as error:
            call()
        assert "secret-token" not in str(error.value)


def test_without_a_kubeconfig_the_message_names_what_is_needed(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="KUBECONFIG"):
        connect("flink")
    assert capfd.readouterr().out == ""


class Answering:
    """A client of Kubernetes whose methods return or raise what a test says."""

    def __init__(self, answer):
        self.answer = answer

    def __getattr__(self, _verb):
        def call(*_words, **_values):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call


@pytest.mark.parametrize(
    "answer",
    ["<html>", {}, None, {"items": None, "metadata": {}}, {"items": [], "metadata": None}],
)
def test_an_odd_list_is_an_error(answer):
    with pytest.raises(CpreplicateError, match="returned no such thing as a list"):
        Namespace("flink", Answering(answer)).listed("a=b")


@pytest.mark.parametrize("status", [403, 413, 422, 429, 500])
def test_what_a_policy_denies_concerns_one_object_and_deletes_nothing_silently(status):
    namespace = Namespace("flink", Answering(ApiException(status=status, reason="no")))
    with pytest.raises(Refused):
        namespace.create({})
    with pytest.raises(Refused):
        namespace.delete("x", "uid")
    Namespace("flink", Answering(ApiException(status=409))).delete("x", "uid")
