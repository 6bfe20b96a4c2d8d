"""What connects to the port of an RPC server without the key stops nobody who has it."""

import contextlib
import socket
import threading
from typing import Any, cast

import pytest

from cpreplicate.storage import Transient
from cpreplicate.storage.rpc import MOST_UNKNOWN, RpcAddress, RpcClient, serve
from tests.support.waiting import PATIENCE

NEVER = 1e6  # seconds
NOISE = {
    "http": b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n",
    "a wrong answer": b"\x00\x00\x00\x04abcd",
    "an answer of 2 GiB": b"\x7f\xff\xff\xff" + b"x" * 1000,
    "an answer of more": b"\xff\xff\xff\xff" + b"\x7f" * 8,
}


@contextlib.contextmanager
def served(handshake=NEVER):
    """Serve `add`; yields the address."""
    with serve({"add": lambda *numbers: sum(numbers)}, "127.0.0.1", handshake=handshake) as address:
        yield address


@contextlib.contextmanager
def connected(address, count):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(address.socket, PATIENCE))
            for _ in range(count)
        ]


def answer(address):
    """Call the server in a thread of its own, and return its answer."""
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(RpcClient(address).call("add", 1, 2)), daemon=True
    )
    thread.start()
    thread.join(PATIENCE)
    assert answers, "the server did not answer"
    return answers[0]


def drained(client):
    """Read all that a server sends, up to the end of the connection."""
    with contextlib.suppress(ConnectionResetError):
        while client.recv(4096):
            pass
    return True


@pytest.mark.parametrize(("host", "bare"), [("[::1]", "::1"), ("::1", "::1"), ("localhost", None)])
def test_a_host_may_be_an_address_of_ipv6_in_the_brackets_that_spark_demands(host, bare):
    with serve({"add": lambda *numbers: sum(numbers)}, host) as address:
        assert address.socket[0] == (bare or host)
        assert answer(address) == 3
        with pytest.raises(OSError, match="in use"), serve({}, host, port=address.socket[1]):
            pass


@pytest.mark.parametrize("count", [1, MOST_UNKNOWN, 3 * MOST_UNKNOWN])
def test_silent_clients_stop_nobody(count):
    with served() as address, connected(address, count):
        assert answer(address) == 3


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_clients_that_send_something_else_stop_nobody_and_are_disconnected(noise):
    with served() as address, connected(address, 20) as clients:
        for client in clients:
            client.sendall(noise)
        assert all(map(drained, clients))
        assert answer(address) == 3


def test_a_client_that_never_ends_its_answer_stops_nobody():
    with served() as address, connected(address, 1) as [client]:
        client.sendall(b"\x00\x00\x00\xf0x")
        assert answer(address) == 3
        client.sendall(b"x")
        assert answer(address) == 3


def test_the_oldest_of_too_many_clients_without_the_key_is_disconnected():
    with served() as address, connected(address, MOST_UNKNOWN + 1) as [first, *_]:
        assert drained(first)


def test_a_client_that_does_not_show_the_key_in_time_is_disconnected_however_it_drips():
    with served(handshake=0.2) as address, connected(address, 1) as [client]:
        ended = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                client.sendall(b"\x00\x00\x00\xf0")
                while not ended.wait(0.05):
                    client.sendall(b"x")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        assert drained(client)
        ended.set()
        dripping.join(PATIENCE)


def test_a_client_with_the_key_is_no_longer_timed():
    with served() as address:
        client = RpcClient(address)
        assert client.call("add", 1) == 1
        for timer in (each for each in threading.enumerate() if isinstance(each, threading.Timer)):
            timer.join(PATIENCE)
            assert not timer.is_alive()
        assert client.call("add", 2) == 2


def test_a_known_client_is_not_among_the_oldest_that_are_disconnected():
    with served() as address:
        client = RpcClient(address)
        assert client.call("add", 1) == 1
        with connected(address, 2 * MOST_UNKNOWN) as [first, *_]:
            assert drained(first)
            assert client.call("add", 2) == 2


def test_a_server_ends_while_silent_clients_are_connected():
    with contextlib.ExitStack() as stack:
        with served() as address:
            clients = stack.enter_context(connected(address, 5))
            assert answer(address) == 3
        assert all(map(drained, clients))
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(address.socket, PATIENCE)


def test_a_driver_that_is_silent_is_one_that_cannot_be_reached(monkeypatch):
    monkeypatch.setattr("cpreplicate.storage.rpc.HANDSHAKE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RpcClient(RpcAddress(silent.getsockname(), b"key"))
        with pytest.raises(Transient, match=r"the driver, .* cannot be reached: it ended"):
            client.call("add", 1)


def test_an_interrupted_call_ends_its_connection_whose_answer_would_be_the_next_ones():
    class Interrupted:
        def send(self, question):
            self.question = question

        def recv(self):
            raise KeyboardInterrupt

        def close(self):
            self.question = None

    with served() as address:
        client = RpcClient(address)
        client._connection = cast(Any, Interrupted())
        with pytest.raises(KeyboardInterrupt):
            client.call("add", 1)
        assert client.call("add", 2) == 2
