"""The deadlines of device processes and threads in seconds, from the configuration. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.config import DeadlinesConfig
from hetsched.units import parse_time

STOP_PARTS = 12
"""A device that should stop, or a process that should end, has this part of the whole stop: 5 s of
a minute."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds; see `DeadlinesConfig` for the meaning of each."""

    start: float
    step: float
    chunk: float
    chunk_factor: float
    stop: float
    disk: float

    @classmethod
    def of(cls, config: DeadlinesConfig) -> Deadlines:
        """Return the deadlines of a checked configuration."""
        return cls(
            start=parse_time(config.start),
            step=parse_time(config.step),
            chunk=parse_time(config.chunk),
            chunk_factor=config.chunk_factor,
            stop=parse_time(config.stop),
            disk=parse_time(config.disk),
        )

    @property
    def fence(self) -> float:
        """Seconds from a cancellation until the devices have stopped."""
        return self.stop / STOP_PARTS

    @property
    def exit(self) -> float:
        """Seconds until a process that should end has ended, then until a killed one has."""
        return self.stop / STOP_PARTS

    @property
    def last_iteration(self) -> float:
        """Seconds for the last iteration of a job whose state is saved in an orderly stop.

        Half of what the stop may take; the rest is for writing.
        """
        return self.stop / 2


DEFAULT_DEADLINES = Deadlines.of(DeadlinesConfig())
