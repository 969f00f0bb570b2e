"""What a thread is doing at present, for the message if it hangs."""

from __future__ import annotations


class Step:
    """The present step of a task. Set by its thread, read by any.

    Attributes
    ----------
    text : str
        "opening /data/x.npy"; completes "... hasn't returned".
    is_interruptible : bool
        It consists of Python code that owns no descriptors, so an exception may end it anywhere.
    """

    def __init__(self) -> None:
        self.text = "a task"
        self.is_interruptible = False

    def enter(self, text: str, *, is_interruptible: bool = False) -> None:
        """Begin another step."""
        self.text = text
        self.is_interruptible = is_interruptible
