"""The flags that may stand anywhere on the command line: -v, --debug, --log-format.

Imports nothing heavy, because every command starts here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

VERBOSE, DEBUG, LOG_FORMAT = ("-v", "--verbose"), ("--debug",), "--log-format"


@dataclass(frozen=True)
class GeneralFlags:
    """`log_format`: as given; None: chosen by where standard error leads."""

    verbose: bool = False
    debug: bool = False
    log_format: str | None = None


def split(words: Sequence[str]) -> tuple[list[str], GeneralFlags]:
    """Return `words` without the general flags before a `--`, and these flags.

    Of a --log-format without a value, the value is "".
    """
    end = words.index("--") if "--" in words else len(words)
    head = iter(words[:end])
    rest: list[str] = []
    verbose = debug = False
    log_format = None
    for word in head:
        if word in VERBOSE:
            verbose = True
        elif word in DEBUG:
            debug = True
        elif word == LOG_FORMAT:
            log_format = next(head, "")
        elif word.startswith(f"{LOG_FORMAT}="):
            log_format = word.partition("=")[2]
        else:
            rest.append(word)
    return [*rest, *words[end:]], GeneralFlags(verbose, debug, log_format)
