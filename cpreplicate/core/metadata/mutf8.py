"""Java's modified UTF-8, as `DataOutputStream.writeUTF` writes it.

NUL is C0 80, and a code point above U+FFFF is two surrogates.
"""

from __future__ import annotations

from cpreplicate.errors import MetadataError

LONGEST = 65_535  # bytes; the length is an unsigned 16-bit number


def decode(data: bytes) -> str:
    """Return the text of some bytes in modified UTF-8.

    A lone surrogate stays one, as in Java. Raises `ValueError` for bytes that Java would not write.
    """
    if data.isascii():
        return data.decode("ascii")
    if max(data) >= 0xF0:
        raise ValueError("a four-byte sequence, which modified UTF-8 does not have")
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    if b"\xed" not in data:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def utf(text: str) -> bytes:
    """Return a text as `DataOutputStream.writeUTF` writes it: its length, then its bytes."""
    data = encode(text)
    return len(data).to_bytes(2, "big") + data


def encode(text: str) -> bytes:
    """Return the bytes of a text in modified UTF-8, without their length.

    Raises `MetadataError` if there are more of them than the format holds.
    """
    if text.isascii():
        data = text.encode("ascii").replace(b"\0", b"\xc0\x80")
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        characters = (chr(units[i] << 8 | units[i + 1]) for i in range(0, len(units), 2))
        data = "".join(characters).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(data) > LONGEST:
        raise MetadataError(
            f"a path of {len(data)} bytes cannot be recorded: the format holds at most"
            f" {LONGEST:,}. It begins with {text[:60]}…"
        )
    return data
