"""How a NameNode wants its clients to authenticate: the first step of Hadoop's RPC, without others.

A client that is configured otherwise gets no useful error: hdfs-native reports a lost connection,
and does not look at the server's principal.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

SECONDS = 3.0  # for the connection, and for the answer
_LONGEST = 1 << 16  # bytes of an answer
_HELLO = b"hrpc" + bytes([9, 0, 0xDF])  # version 9, and SASL (-33)
# RpcRequestHeaderProto: protocol buffers, a final packet, call -33, no client id, retry -1
_HEADER = bytes([0x08, 2, 0x10, 0, 0x18, 65, 0x22, 0, 0x28, 1])
_NEGOTIATE = bytes([0x10, 1])  # RpcSaslProto
_AUTHS, _METHOD, _PROTOCOL, _SERVER = 4, 1, 3, 4


class Method(NamedTuple):
    """One method: SIMPLE, TOKEN or KERBEROS; of the last, the server's principal but its realm."""

    name: str
    server: str


def methods_of(address: str) -> list[Method]:
    """Return what the NameNode at `host:port` offers, nothing if it does not answer as expected."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError, IndexError, struct.error):
        return list(_methods(_asked(host, int(port))))
    return []


def _asked(host: str, port: int) -> bytes:
    with socket.create_connection((host, port), SECONDS) as connection:
        connection.sendall(_HELLO + _request())
        return _answer(connection)


def _request() -> bytes:
    body = b"".join(bytes([len(each)]) + each for each in (_HEADER, _NEGOTIATE))
    return struct.pack(">I", len(body)) + body


def _answer(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        (length,) = struct.unpack(">I", stream.read(4))
        return stream.read(min(length, _LONGEST))


def _methods(answer: bytes) -> Iterator[Method]:
    length, position = _number(answer, 0)  # the header of the answer
    length, start = _number(answer, position + length)
    for field, value in _fields(answer[start : start + length]):
        if field == _AUTHS and isinstance(value, bytes):
            texts = {
                number: text.decode()
                for number, text in _fields(value)
                if isinstance(text, bytes) and number in (_METHOD, _PROTOCOL, _SERVER)
            }
            server = f"{texts.get(_PROTOCOL, '')}/{texts.get(_SERVER, '')}"
            yield Method(texts.get(_METHOD, ""), server)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message that has only numbers and texts."""
    position = 0
    while position < len(data):
        key, position = _number(data, position)
        value, position = _number(data, position)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2:
            yield key >> 3, data[position : position + value]
            position += value
        else:
            raise ValueError("no such kind of field is in this message")


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if not byte & 0x80:
            return number, position
