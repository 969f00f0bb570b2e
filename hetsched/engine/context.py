"""Parts and settings common to all of one engine."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from hetsched.config import DeadlinesConfig
from hetsched.engine.admission.check import Admission
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.threads import Pool
from hetsched.engine.tuning import Tuner
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop


@dataclass
class EngineContext:
    """Parts and settings of one engine."""

    loop: Loop
    fleet: Fleet
    planner_thread: Pool
    checks: Pool  # Checks jobs, runs code of plug-ins for that, and opens files
    disk: Pool  # Writes, names and closes them
    admission: Admission
    arena: Arena
    planning: PlanningState
    tuner: Tuner
    memory_limit: int | None = None  # Bytes of each device's own memory, for jobs that set none
    stealing: bool = False  # Idle devices steal chunks
    deadlines: DeadlinesConfig = field(default_factory=DeadlinesConfig)
    small_jobs: bool = True  # They may run beside a larger one
    # Unique to the journal, for what its jobs leave on disk; "": there is none
    journal_token: str = ""
    disabled: set[str] = field(default_factory=set)  # Devices that aren't to be used at present
    # Seeds the random projections of verification, so that no workload can predict them
    verification_secret: int = field(default_factory=lambda: secrets.randbits(48))
    # Each attempt of any job has its own, which late answers name
    attempt_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    is_stopping: bool = False
