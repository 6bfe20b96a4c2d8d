"""What goes wrong with Kubernetes is an error of ours. `make try-kubernetes` has a server."""

import pytest
import yaml

from cpreplicate.errors import CpreplicateError, UsageError
from cpreplicate.kubernetes import connect


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
