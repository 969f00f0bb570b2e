"""Records to bytes and back: typed msgpack, never a pickle.

Whatever a peer sends, decoding yields a record of the expected type or raises ProtocolError.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from hetsched.errors import ProtocolError
from hetsched.transport.messages import MAX_FRAME

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(message: Any) -> bytes:
    """`message` (a Struct or plain data) as msgpack."""
    return _encoder.encode(message)


class Decoder(Generic[T]):
    """Decodes one type of message. Calls may come from any thread.

    Parameters
    ----------
    kind : type or union of tagged Structs
    limit : int, bytes
        A longer message is refused before it is looked at.
    """

    def __init__(self, kind: Any, limit: int = MAX_FRAME) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._limit = limit

    def __call__(self, payload: bytes | memoryview) -> T:
        """The message in `payload`.

        Raises
        ------
        ProtocolError
            Too long, not msgpack, or not of the type.
        """
        if len(payload) > self._limit:
            raise ProtocolError(
                f"a message of {len(payload)} bytes; the limit is {self._limit}: send less at once"
            )
        try:
            message: T = self._decode(payload)
        # msgspec raises UnicodeDecodeError on bad UTF-8 and RecursionError on deep nesting.
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(
                f"undecodable message ({error}); the peer may be of another version"
            ) from None
        return message
