"""A job's run on devices that do what a test says, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from device_toys import Affine, AffineParams

from hetsched.config import DeadlinesConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.run.attempt import Joined, Lost, Message
from hetsched.engine.run.runner import JobRunner
from hetsched.engine.tuning import Tuner
from hetsched.errors import ErrorRecord
from hetsched.job import Done, Failed, JobSpec, JobState
from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans import DevicePlan
from hetsched.store.model_store import ModelStore
from hetsched.transport import device_messages as messages
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop

T = TypeVar("T")
UNITS = 4
"""Of each device, in chunks of one."""


class ScriptedFleet:
    """Devices that are ready unless they are in `dead`. Notes what is sent, and who is killed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.infos = tuple(DeviceInfo(name=name, kind="cpu", identity=name) for name in names)
        self.absent: dict[str, str] = {}
        self.sent: list[tuple[str, Any]] = []
        self.killed: list[str] = []
        self.dead: set[str] = set()
        self.silent: set[str] = set()

    def ready(self) -> set[str]:
        return {info.name for info in self.infos} - self.dead

    def info(self, device: str) -> DeviceInfo:
        return next(info for info in self.infos if info.name == device)

    def usable(self, devices: Iterable[str]) -> list[DeviceInfo]:
        return [info for info in self.infos if info.name in self.ready().intersection(devices)]

    def any_remaining(self, devices: Iterable[str]) -> bool:
        return True

    def starting(self, devices: Iterable[str]) -> frozenset[str]:
        return frozenset(self.dead.intersection(devices))

    async def settled(self, devices: Iterable[str], **options: bool) -> None:
        pass

    async def started(self, devices: Iterable[str]) -> None:
        pass

    def silent_seconds(self, device: str, since: float) -> float:
        return time.monotonic() - since if device in self.silent else 0.0

    def attach(self, *arguments: object) -> None:
        pass

    def attached(self, device: str) -> tuple[int, ...]:
        return ()

    def detach(self, keys: object) -> None:
        pass

    def send(self, device: str, command: Any) -> None:
        if device in self.ready():
            self.sent.append((device, command))

    def kill_process_of(self, device: str, reason: str) -> None:
        self.killed.append(device)


class EvenPlans:
    """Plans with UNITS chunks for each device."""

    def __init__(self) -> None:
        self.planned: list[list[str]] = []

    async def plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        self.planned.append([info.name for info in infos])
        return JobPlan(tuple(self._assignment(*each) for each in enumerate(infos)), None)

    def _assignment(self, number: int, info: DeviceInfo) -> Assignment:
        first = number * UNITS
        chunks = tuple(Chunk(unit, unit, 1) for unit in range(first, first + UNITS))
        plan = DevicePlan((tuple(chunk.count for chunk in chunks),))
        return Assignment(info.name, "numpy", plan, chunks, 1, 1, 0, 2, None)

    def learning_task(self, runs: object) -> None:
        return None


class Story:
    """One job, on devices "a" and "b" unless told otherwise."""

    def __init__(self, *names: str, deadlines: DeadlinesConfig | None = None) -> None:
        names = names or ("a", "b")
        self.loop = Loop()
        self.fleet = ScriptedFleet(names)
        self.plans = EvenPlans()
        self.states: list[JobState] = []
        self.last: Done | Failed | None = None
        self._finished: set[tuple[str, int, int]] = set()
        self._attempt = 0
        self._arena = Arena(1 << 20)
        context = EngineContext(
            self.loop,
            cast(Any, self.fleet),
            cast(Any, None),
            cast(Any, None),
            cast(Any, None),
            cast(Any, None),
            self._arena,
            PlanningState(ModelStore(None)),
            Tuner(self.loop, lambda: None, is_before_jobs=False),
            deadlines=deadlines or DeadlinesConfig(),
        )
        params = AffineParams(UNITS * len(names))
        arrays = Affine().arrays(params)
        job = ResolvedJob(
            Affine(),
            "device_toys:Affine",
            params,
            params.units,
            arrays,
            devices=tuple(names),
        )
        job.into = {"y": None}
        spec = JobSpec(workload="device_toys:Affine", params={})
        self.runner = JobRunner(1, spec, job, context, self.on_state, self.on_end)
        self.runner._planning = cast(Any, self.plans)

    def close(self) -> None:
        self._arena.close()
        self.loop.close()

    def on_state(self, state: JobState) -> None:
        self.states.append(state)

    def on_end(self, state: Done | Failed, learning_task: object) -> None:
        assert self.last is None, "a job ends once"
        self.last = state

    # ---- what happens

    def begin(self) -> Story:
        self.runner.begin()
        return self.settle()

    def settle(self) -> Story:
        """Run the loop until nothing is left to do."""

        async def turns() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        return self

    def wait_until(self, is_true: Callable[[], object]) -> Story:
        """Run the loop until a deadline has had its effect."""

        async def look() -> None:
            while not is_true():
                await asyncio.sleep(0.005)

        self.loop.run_until_complete(asyncio.wait_for(look(), 30))
        return self.settle()

    def prepared(self, *devices: str) -> Story:
        for device in devices:
            self.runner.tell(Message(device, messages.Prepared(self.attempt)))
        return self.settle()

    def chunk(self, device: str, times: int = 1) -> Story:
        """Let `device` finish the oldest chunks that it was sent."""
        for _ in range(times):
            chunk = self.unfinished(device)[0]
            self._finished.add((device, self.attempt, chunk.id))
            times_of_it = ChunkTimes(compute=(0.0, 1.0))
            report = messages.DoneChunk(chunk.id, chunk.first, chunk.count, times_of_it)
            done = messages.ChunksDone(self.attempt, (report,))
            self.runner.tell(Message(device, done))
            self.settle()
        return self

    def failed(self, device: str, cause: Any, chunk: int | None = None) -> Story:
        error = ErrorRecord(1, f"{cause} on {device}")
        failure = messages.CommandFailed(self.attempt, cause, error, chunk)
        self.runner.tell(Message(device, failure))
        return self.settle()

    def fenced(self, *devices: str) -> Story:
        for device in devices:
            self.runner.tell(Message(device, messages.Released(self.attempt)))
        return self.settle()

    def lost(self, device: str) -> Story:
        self._finished.update((device, self.attempt, c.id) for c in self.unfinished(device))
        self.fleet.dead.add(device)
        self.runner.tell(Lost(device, "killed"))
        return self.settle()

    def back(self, device: str) -> Story:
        self.fleet.dead.discard(device)
        self.runner.tell(Joined(device))
        return self.settle()

    def finish(self) -> Story:
        """Let all devices compute until there is nothing left."""
        while self.last is None:
            busy = [d for d in sorted(self.fleet.ready()) if self.unfinished(d)]
            for device in busy:
                self.chunk(device)
            assert busy or self.last is not None, "nobody works"
        return self

    # ---- what is seen

    @property
    def attempt(self) -> int:
        """The present attempt, or the last one."""
        latest = self.runner.latest
        self._attempt = latest.id if latest is not None else self._attempt
        return self._attempt

    def commands(self, kind: type[T]) -> list[tuple[str, T]]:
        """Return the commands of this kind about the present attempt, with their devices."""
        attempt = self.attempt
        return [(d, c) for d, c in self.fleet.sent if isinstance(c, kind) and c.attempt == attempt]  # type: ignore[attr-defined]

    def devices_of(self, kind: type[Any]) -> list[str]:
        return [device for device, _ in self.commands(kind)]

    def unfinished(self, device: str) -> list[Chunk]:
        sent = [c for d, run in self.commands(messages.Run) if d == device for c in run.chunks]
        return [c for c in sent if (device, self.attempt, c.id) not in self._finished]

    @property
    def error(self) -> str:
        assert isinstance(self.last, Failed)
        return self.last.error.message
