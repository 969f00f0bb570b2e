"""What the parts of one engine share."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hetsched.device import DeviceInfo
from hetsched.engine.planning.experience import Experience
from hetsched.engine.planning.planner_thread import PlannerThread
from hetsched.engine.processes.fleet import Fleet
from hetsched.store.model_store import ModelStore
from hetsched.transport.arena import Arena


@dataclass
class Context:
    """`memory_limit`: of each device's own memory, for jobs that don't say (bytes).

    `stealing`: idle devices take chunks of others.

    `new_wire` numbers the starts of jobs: answers to an earlier start are told apart by it.

    `secret` seeds the random projections of verification: no workload can prepare for them.
    """

    fleet: Fleet
    planner_thread: PlannerThread
    arena: Arena
    store: ModelStore
    memory_limit: int | None = None
    stealing: bool = False
    experience: Experience = field(default_factory=Experience)
    secret: int = field(default_factory=lambda: secrets.randbits(48))
    new_wire: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)

    def steals(self, devices: Iterable[str]) -> bool:
        """Only among devices on this clock: others' paces couldn't be compared."""
        return self.stealing and {self.info(device).clock for device in devices} == {"wall"}

    def info(self, device: str) -> DeviceInfo:
        return self.fleet.info(device)
