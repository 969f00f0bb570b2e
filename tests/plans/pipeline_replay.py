"""A second opinion on what a plan costs: operations on engines, one event after the other.

By other means than `timeline`: every phase is an operation with the operations that it waits for,
engines work off queues in order, and time passes from one end of an operation to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hetsched.plans import DevicePlan, Mode, Overlap

Name = tuple[str, int]
"""Phase "I", "W" or "O", and the number of the chunk in the whole plan."""


@dataclass
class Operation:
    work: float
    after: set[Name]
    begin: float = -1.0
    end: float = -1.0


@dataclass
class Engine:
    queue: list[Name]
    running: Name | None = None
    remaining: float = field(default=0.0)


def replay(
    plan: DevicePlan,
    costs: Sequence[tuple[float, float, float]],
    overlap: Overlap,
    duplex: tuple[float, float] = (1.0, 1.0),
) -> dict[Name, tuple[float, float]]:
    """Begin and end of every phase. `costs`: copy in, compute, copy out of each chunk, seconds."""
    operations, engines = _programme(plan, costs, overlap)
    now, done = 0.0, set[Name]()
    while len(done) < len(operations):
        _begin(operations, engines, done, now)
        paces = _paces(engines, overlap, duplex)
        running = [(engine, paces[engine.running[0]]) for engine in engines if engine.running]
        step = min(engine.remaining / pace for engine, pace in running)
        now += step
        for engine, pace in running:
            engine.remaining -= step * pace
            if engine.running and engine.remaining <= 1e-13:
                operations[engine.running].end = now
                done.add(engine.running)
                engine.running = None
    return {name: (operation.begin, operation.end) for name, operation in operations.items()}


def _begin(
    operations: dict[Name, Operation], engines: list[Engine], done: set[Name], now: float
) -> None:
    for engine in engines:
        if engine.running is None and engine.queue and operations[engine.queue[0]].after <= done:
            engine.running = engine.queue.pop(0)
            operations[engine.running].begin = now
            engine.remaining = operations[engine.running].work


def _paces(
    engines: list[Engine], overlap: Overlap, duplex: tuple[float, float]
) -> dict[str, float]:
    busy = {engine.running[0] for engine in engines if engine.running}
    if overlap is Overlap.FULL and {"I", "O"} <= busy:
        return {"I": duplex[0], "W": 1.0, "O": duplex[1]}
    return {"I": 1.0, "W": 1.0, "O": 1.0}


def _programme(
    plan: DevicePlan, costs: Sequence[tuple[float, float, float]], overlap: Overlap
) -> tuple[dict[Name, Operation], list[Engine]]:
    """All operations with what they wait for, and the engines with their queues."""
    operations: dict[Name, Operation] = {}
    first = 0
    for chunks in plan.sub_distributions:
        slots = plan.slots if plan.mode is Mode.RING else len(chunks)
        for number in range(first, first + len(chunks)):
            barrier = {("O", first - 1)} if first else set()
            freed = {("O", number - slots)} if number - slots >= first else set()
            waits = (barrier | freed, {("I", number)}, {("W", number)})
            for phase, work, after in zip("IWO", costs[number], waits, strict=True):
                operations[phase, number] = Operation(work, set(after))
        first += len(chunks)
    if overlap is Overlap.FULL:
        queues = [[(phase, n) for n in range(first)] for phase in "IWO"]
    elif overlap is Overlap.NONE:
        queues = [[(phase, n) for n in range(first) for phase in "IWO"]]
    else:
        queues = [list(_one_copy_engine(plan)), [("W", n) for n in range(first)]]
    return operations, [Engine(queue) for queue in queues]


def _one_copy_engine(plan: DevicePlan) -> Iterator[Name]:
    """I1 I2 O1 I3 O2 ... in each sub-distribution; I1 O1 I2 O2 ... where there is one slot."""
    first = 0
    for chunks in plan.sub_distributions:
        last = first + len(chunks) - 1
        for number in range(first, last + 1):
            yield "I", number
            if plan.slots == 1:
                yield "O", number
            elif number > first:
                yield "O", number - 1
        if plan.slots != 1:
            yield "O", last
        first = last + 1
