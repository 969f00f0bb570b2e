"""Encodes and decodes records: typed msgpack, never a pickle.

Decoding returns a record of the expected type or raises ProtocolError, whatever the peer sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from hetsched.errors import ProtocolError
from hetsched.transport.messages import MAX_FRAME

T = TypeVar("T")

MAX_REASON = 300
"""Characters of a decoding error that are repeated: it may quote the message. Arbitrary."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Returns a Struct or plain data as msgpack."""


class Decoder(Generic[T]):
    """A thread-safe decoder of a type, or of a union of tagged ones, in `limit` bytes."""

    def __init__(self, message_type: Any, limit: int = MAX_FRAME) -> None:
        self._decode = msgspec.msgpack.Decoder(message_type).decode
        self._limit = limit

    def __call__(self, payload: bytes | memoryview) -> T:
        if len(payload) > self._limit:
            raise ProtocolError(
                f"a message of {len(payload)} bytes; the limit is {self._limit}: send less at once"
            )
        try:
            message: T = self._decode(payload)
        # Besides its own errors msgspec raises UnicodeDecodeError on bad UTF-8, RecursionError on
        # deep nesting, and what a record's __post_init__ raises: here any error is the peer's.
        except Exception as error:
            reason = str(error)[:MAX_REASON]
            raise ProtocolError(
                f"undecodable message ({reason}); the peer may have another version"
            ) from None
        return message
