"""Bytes of a terminal as names of keys. Pure."""

from __future__ import annotations

from collections.abc import Iterator

SEQUENCES = {
    b"\x1b[A": "up", b"\x1bOA": "up",
    b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[5~": "pageup", b"\x1b[6~": "pagedown",
    b"\x1b[H": "home", b"\x1bOH": "home", b"\x1b[1~": "home",
    b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end",
    b"\r": "enter", b"\n": "enter",
    b"\x03": "ctrl-c",
}  # fmt: skip
"""Those of xterm, the Linux console, tmux and screen."""


def keys(data: bytes) -> Iterator[str]:
    """Yield the keys pressed: a name, or the character itself. Unknown sequences are skipped."""
    position = 0
    while position < len(data):
        rest = data[position:]
        sequence = next((s for s in SEQUENCES if rest.startswith(s)), None)
        if sequence is not None:
            yield SEQUENCES[sequence]
            position += len(sequence)
        elif rest[:1] == b"\x1b":
            length = _sequence_length(rest)
            if length == 1:
                yield "escape"
            position += length
        else:
            character = rest[:1].decode("ascii", "ignore")
            if character.isprintable() and character:
                yield character
            position += 1


def _sequence_length(data: bytes) -> int:
    """Return the length of an escape sequence; 1 for the Escape key itself."""
    if data[1:2] not in (b"[", b"O"):
        return 1
    for index, byte in enumerate(data[2:], 2):
        if 0x40 <= byte <= 0x7E:
            return index + 1
    return len(data)
