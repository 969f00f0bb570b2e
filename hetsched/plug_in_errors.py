"""What the code of a plug-in raises, as an error of its job that says where."""

from __future__ import annotations

import os
import traceback

from hetsched.errors import HetschedError, JobFailed, encodable, plain, text_of

MAX_FRAMES = 12
"""Of a traceback of a plug-in's code: endless recursion has a thousand equal ones."""
PACKAGE = os.path.dirname(__file__) + os.sep


def plug_in_error(what: str, error: BaseException) -> HetschedError:
    """Return the error of a job whose plug-in raised `error`; `what` failed.

    One of our error tree says itself what is wrong. To be called where the plug-in may hang.
    """
    if isinstance(error, HetschedError):
        own = plain(error)
        if type(error) is JobFailed:
            own.frames = error.frames
        return own
    frames = _own_frames(error)
    said = " ".join(text_of(error).split())
    text = f"{what} failed: {type(error).__name__}: {said}".rstrip(": ")
    if frames:
        text += f" ({frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})"
    failure = JobFailed(encodable(text))
    failure.frames = encodable("".join(traceback.format_list(frames)).rstrip("\n"))
    return failure


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames outside this package, the innermost last.

    Without columns: for carets Python 3.11 would parse the line, which isn't safe beside another
    thread that parses.
    """
    frames = traceback.extract_tb(error.__traceback__, limit=-4 * MAX_FRAMES)
    own = [frame for frame in frames if not frame.filename.startswith(PACKAGE)][-MAX_FRAMES:]
    return [traceback.FrameSummary(each.filename, each.lineno, each.name) for each in own]
