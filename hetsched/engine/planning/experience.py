"""What an engine found out on the way and isn't a speed: variants, memory, kernels, good plans."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from hetsched.device import DeviceInfo
from hetsched.engine.resolve import Resolved
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.rebalancer import Rebalancer
from hetsched.workload import Variant

MOST_PLANS = 256
MOST_KERNELS = 8
"""Kernels that surely are still kept by a device, which keeps 16."""

PlanKey = tuple[str, bytes, str, tuple[str, ...], int | None]
"""Workload, params, storage, devices, memory limit."""


def plan_key(job: Resolved, devices: Iterable[str], memory_limit: int | None) -> PlanKey:
    params = msgspec.json.encode(job.params)
    return job.reference, params, job.storage, tuple(devices), memory_limit


@dataclass
class Experience:
    """One for each engine.

    `broken`: (where, workload, variant) that could not be made. `memory`: device ->
    bytes, less than it said, after it ran out. `installed`: (reference, kind) -> variants; looking
    for them takes milliseconds.
    """

    broken: set[tuple[str, str, str]] = field(default_factory=set)
    memory: dict[str, int] = field(default_factory=dict)
    installed: dict[tuple[str, str], Sequence[Variant]] = field(default_factory=dict)
    kernels: dict[str, list[str]] = field(default_factory=dict)
    """Device -> the kernels that it was prepared for, the last one last."""
    changes: dict[str, str] = field(default_factory=dict)
    """Device -> what is to be said of its speed, which has just changed."""
    rebalancers: dict[PlanKey, Rebalancer] = field(default_factory=dict)
    ready: dict[PlanKey, JobPlan] = field(default_factory=dict)
    """Plans that were made ahead, for the next job of their kind. The only part that the loop's
    thread takes from: what is there needs no other thread."""
    plan_cache: PlanCache = field(default_factory=PlanCache)
    """Used in the planner's thread only."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rebalancer(self, key: PlanKey, load: int) -> Rebalancer:
        """Return the rebalancer of this kind of job."""
        with self._lock:
            rebalancer = self.rebalancers.get(key)
            if rebalancer is None:
                if len(self.rebalancers) >= MOST_PLANS:
                    oldest = next(iter(self.rebalancers))
                    self.rebalancers.pop(oldest, None)
                    self.ready.pop(oldest, None)
                rebalancer = self.rebalancers[key] = Rebalancer(load, key[3], self.plan_cache)
        return rebalancer

    def changed(self, device: str, said: str) -> None:
        """The speed of `device` has changed: no split that was good is any more."""
        self.changes[device] = said
        self._plan_anew()

    def _plan_anew(self) -> None:
        with self._lock:  # the loop's thread does so, too
            self.rebalancers.clear()
            self.ready.clear()

    def variants(self, job: Resolved, info: DeviceInfo) -> Sequence[Variant]:
        """What is installed for such a device and not broken; looked for once."""
        kind = info.variant_kind
        place = (job.reference, kind)
        if place not in self.installed:
            self.installed[place] = tuple(job.workload.variants(kind))
        return [
            variant
            for variant in self.installed[place]
            if (_where(info), job.workload.name, variant.name) not in self.broken
            and (variant.threaded or not info.members)
        ]

    def warm(self, job: Resolved, assigned: Iterable[Assignment]) -> bool:
        """Whether these devices have made these kernels before: preparing them is quick."""
        return all(_kernel(job, one) in self.kernels.get(one.device, ()) for one in assigned)

    def warmed(self, job: Resolved, assigned: Iterable[Assignment]) -> None:
        for one in assigned:
            made = self.kernels.setdefault(one.device, [])
            name = _kernel(job, one)
            if name in made:
                made.remove(name)
            made.append(name)
            del made[:-MOST_KERNELS]

    def cooled(self, devices: Collection[str]) -> None:
        """Their processes have ended."""
        for device in devices:
            self.kernels.pop(device, None)

    def broke(self, job: Resolved, info: DeviceInfo, variant: str) -> None:
        """`variant` couldn't be made: it isn't planned with any more."""
        self.broken.add((_where(info), job.workload.name, variant))
        self._plan_anew()

    def did_well(self, devices: Iterable[str]) -> None:
        """What these devices lacked once, they may have again: try twice as much next time."""
        for device in devices:
            if device in self.memory:
                self.memory[device] *= 2

    def ran_out(self, device: str, memory: int) -> None:
        """`device` didn't have `memory` bytes: plan for half."""
        self.memory[device] = max(1, memory // 2)
        self._plan_anew()


def _where(info: DeviceInfo) -> str:
    """The devices on which a variant that breaks on this one would break, too."""
    return f"{info.variant_kind} team" if info.members else info.variant_kind


def _kernel(job: Resolved, one: Assignment) -> str:
    """What a kernel depends on: plans of some libraries depend on the most units a call, too."""
    return f"{job.reference} {msgspec.json.encode(job.params)!r} {one.variant} {one.chunk}"
