"""The deadlines of device processes and threads in seconds, from the configuration. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.config import DeadlinesConfig
from hetsched.units import parse_time


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds; see `DeadlinesConfig` for the meaning of each."""

    hello: float
    silence: float
    fence: float
    chunk: float
    chunk_factor: float
    unpredicted_chunk: float
    prepare: float
    fill: float
    check: float
    exit: float
    open: float
    planner: float
    publish: float
    stop: float

    @classmethod
    def of(cls, config: DeadlinesConfig) -> Deadlines:
        """Return the deadlines of a checked configuration."""
        return cls(
            hello=parse_time(config.hello),
            silence=parse_time(config.silence),
            fence=parse_time(config.fence),
            chunk=parse_time(config.chunk),
            chunk_factor=config.chunk_factor,
            unpredicted_chunk=parse_time(config.unpredicted_chunk),
            prepare=parse_time(config.prepare),
            fill=parse_time(config.fill),
            check=parse_time(config.check),
            exit=parse_time(config.exit),
            open=parse_time(config.open),
            planner=parse_time(config.planner),
            publish=parse_time(config.publish),
            stop=parse_time(config.stop),
        )

    @property
    def last_iteration(self) -> float:
        """Seconds for the last iteration of a job whose state is saved in an orderly stop.

        Half of what the stop may take; the rest is for writing.
        """
        return self.stop / 2


DEFAULT_DEADLINES = Deadlines.of(DeadlinesConfig())
