"""What the scheduler needs of its engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetsched.engine.planning.run_planner import LearningTask


@dataclass(frozen=True)
class EngineHooks:
    """Callbacks of the scheduler.

    Attributes
    ----------
    on_learn : callable
        Takes the learning task of each attempt.
    on_idle : callable
        No job waits or runs.
    """

    on_learn: Callable[[LearningTask], None]
    on_idle: Callable[[], None]
