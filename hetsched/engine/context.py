"""What the parts of one engine share."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from hetsched.engine.planning.planner_thread import PlannerThread
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.processes.fleet import Fleet
from hetsched.transport.arena import Arena


@dataclass
class EngineContext:
    """Parts and settings of one engine.

    Attributes
    ----------
    memory_limit : int or None, bytes
        Of each device's own memory, for jobs that don't set one.
    stealing : bool
        Idle devices take chunks of others.
    verification_secret : int
        Seeds the random projections of verification: no workload can know them beforehand.
    new_attempt_id : callable
        Numbers the attempts of all jobs: late answers to an earlier attempt are recognised by it.
    """

    fleet: Fleet
    planner_thread: PlannerThread
    arena: Arena
    planning: PlanningState
    memory_limit: int | None = None
    stealing: bool = False
    verification_secret: int = field(default_factory=lambda: secrets.randbits(48))
    new_attempt_id: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)
