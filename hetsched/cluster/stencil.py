"""Which host advances which cells of a grid, step by step, until all steps are done. Pure.

A grid is cut into blocks, and hosts hold some each, by Dethier's method: quotas by their powers, a
compact piece each, as few blocks moved as possible when powers change or hosts come and go. What a
host holds it advances as a few rectangles, each with a frame of its neighbours' cells `width`
deep: as many steps as that at once, a *sweep*, need no other host. After a sweep the hosts send
each other the frames; nobody waits for the coordinator, which is two sweeps ahead with its orders.

Wider frames mean fewer messages and more cells that two hosts compute: the width is where both
together cost least, by what sweeps have taken (Demmel et al., Avoiding communication, 2008).
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np

from hetsched.cluster import orders
from hetsched.cluster.coordinator import (
    MAX_LOSSES,
    PATIENCE,
    Added,
    Failed,
    Follower,
    HostModels,
    Lost,
    Membership,
    table,
)
from hetsched.cluster.mapping import Grid, Ints, Mapping, Tree, cheapest_flows, quotas, tree_flows
from hetsched.cluster.regions import Box, Held, Shape, covers, rectangles
from hetsched.errors import JobFailed, TryAgain, UsageError
from hetsched.text import number

log = logging.getLogger(__name__)

BLOCKS = 32
"""Of a host on average: its share is within some 3 % of its power."""
LEAD = 2
"""Sweeps that hosts may be ahead of what the slowest has reported."""
WIDTH = 16
"""Of frames, until sweeps have been measured."""
RECENT = 3
"""Sweeps whose median is a host's time: one that was disturbed changes nothing."""
GAIN = 0.05
"""Of the time of a step: what a new cut must save."""
SAVE_EVERY = 30.0
"""Seconds between two checkpoints."""
OPENING = 30.0
"""Seconds that a host has to open a job."""
MAX_STRIKES = 3
"""Times between two checkpoints that a host may be lost which hasn't done a sweep, or which others
can't reach; then it takes no part any more."""
SLOW_SAVE = 60.0
"""Seconds after which a checkpoint that isn't written is worth a warning."""
MAX_WARNINGS = 10
"""Of a job, that its result shows; all are logged."""
SAVE_PART = 20
"""Times what a checkpoint takes are between two."""


class Told(NamedTuple):
    host: str
    notice: orders.Notice


class StencilHosts(Membership, Protocol):
    def open(self, host: str) -> None:
        """Have a host take part in the present job; it tells `Opened`."""

    def order(self, host: str, order: orders.Order) -> None:
        """Tell a host what to do; a lost one is ignored."""

    def drop(self, host: str, reason: str) -> None:
        """Count a host as lost that others can't reach."""


@dataclass(frozen=True)
class GridJob:
    """`steps` of a grid of `shape` cells; what is beyond the edges of an axis if it's periodic."""

    shape: Shape
    periodic: tuple[bool, bool]
    steps: int
    reach: int = 1
    """Cells from which a cell depends on another in a step."""


@dataclass
class StencilWork:
    """What one host did, for `explain`."""

    blocks: int = 0
    sweeps: int = 0
    seconds: float = 0.0
    computing: float = 0.0
    waiting: float = 0.0
    lost: str = ""


@dataclass
class StencilOutcome:
    """What became of a job; `moved` blocks by new cuts, `again`: steps that were repeated."""

    job: GridJob
    work: dict[str, StencilWork] = field(default_factory=dict)
    blocks: int = 0
    width: int = 0
    iteration: int = 0
    continued: int = 0
    """The step of an earlier job's checkpoint with which this one began."""
    cuts: int = 0
    moved: int = 0
    again: int = 0
    checkpoints: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def explain(self) -> str:
        """Return a table of hosts and what they did."""
        rows_by_columns = "x".join(map(str, self.job.shape))
        head = (
            f"{self.job.steps} steps of {rows_by_columns} cells in {number(self.seconds)} s,"
            f" {self.blocks} blocks, {self.width} steps a sweep"
        )
        if self.continued:
            head += f", continued after step {self.continued}"
        if self.cuts:
            head += f", {self.moved} blocks moved in {self.cuts} new cuts"
        if self.again:
            head += f", {self.again} steps again"
        names = ("blocks", "sweeps", "computing", "seconds", "waiting")
        return "\n".join([head, *table(names, self.work), *self.warnings])

    def record(self) -> dict[str, Any]:
        names = [
            "blocks",
            "width",
            "continued",
            "cuts",
            "moved",
            "again",
            "checkpoints",
            "seconds",
        ]
        return {
            "steps": self.job.steps,
            **{name: getattr(self, name) for name in names},
            "hosts": [{"host": host, **asdict(work)} for host, work in self.work.items()],
            "warnings": self.warnings,
        }


@dataclass
class _Host:
    since: float
    savings: tuple[orders.Saving, ...] | None = None
    """None: it hasn't opened the job yet."""
    iteration: int = -1
    """In the present generation; -1: it hasn't its cells yet."""
    has_worked: bool = False
    """It has done a sweep, and others reach it."""
    is_collected: bool = False
    sweeps: deque[orders.Swept] = field(default_factory=lambda: deque(maxlen=RECENT))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Steps of these sweeps."""
    power: float = math.nan
    """Cells a second; NaN: unknown."""

    @property
    def overhead(self) -> float:
        """Median of the seconds of a sweep that aren't its iterations'."""
        return median(max(0.0, s.seconds - s.computing) for s in self.sweeps)

    def of_step(self, seconds: Callable[[orders.Swept], float]) -> float:
        """Return the median of `seconds` of a step."""
        return median(seconds(s) / n for s, n in zip(self.sweeps, self.lengths, strict=True))


@dataclass(frozen=True)
class _Checkpoint:
    name: str
    iteration: int
    held: tuple[Held, ...]
    copies: dict[str, str]
    """Host -> the one that has a copy of what it has."""


class StencilCoordinator:
    """Runs one job over `hosts`, and learns their powers. `follow` is called after each sweep.

    `every`: seconds between checkpoints, more if these take over 5 % of the time.
    """

    def __init__(
        self,
        hosts: StencilHosts,
        models: HostModels,
        kind: str,
        job: GridJob,
        epoch: int,
        name: str,
        *,
        every: float = SAVE_EVERY,
        follow: Callable[[StencilOutcome], object] | None = None,
    ) -> None:
        self._hosts, self._models, self._kind, self._job = hosts, models, kind, job
        self._epoch, self._name = epoch, name
        self._every, self._tell = every, Follower(follow)
        self._members: dict[str, _Host] = {}
        self._generation = 0
        self._names: list[str] = []
        """Of the mapping's hosts."""
        self._mapping: Mapping | None = None
        self._held: tuple[Held, ...] = ()
        self._loads: dict[str, _Load] = {}
        self._width = 0
        self._dear: list[int] = []
        """Quotas that would cost more than the present ones."""
        self._until = 0
        self._stops = False
        """Hosts stop at `_until` for a new cut."""
        self._is_collecting = False
        self._ready_seconds = self._first_seconds = 0.0
        """What the present cut took, and its first sweeps besides their iterations."""
        self._checkpoint: _Checkpoint | None = None
        self._saving: _Checkpoint | None = None
        self._missing: set[tuple[str, str]] = set()
        """(owner, writer) of what isn't saved yet."""
        self._saved_at = 0.0
        self._saving_since = self._save_seconds = 0.0
        self._strikes: Counter[str] = Counter()
        self._farthest = self._losses = 0
        """The last step that all hosts reached, and how often some were lost since then."""
        self.outcome = StencilOutcome(job)

    def run(self, is_cancelled: Callable[[], bool] = lambda: False) -> StencilOutcome:
        """Return once the results are here. Raises the first error of a host, or TryAgain."""
        hosts = self._hosts
        began = alone_since = self._saved_at = hosts.now()
        for host in hosts.hosts():
            self._welcome(host)
        while not is_cancelled():
            event = hosts.event(0.25)
            match event:
                case Added(host):
                    self._welcome(host)
                case Lost(host, reason):
                    self._lose(host, reason)
                case Told(host, notice) if host in self._members:
                    self._take(host, notice)
                case Failed(host, share, error) if share.epoch == self._epoch:
                    raise error
            if self._is_collecting and all(member.is_collected for member in self._active()):
                break
            self._go_on()
            if self._members:
                alone_since = hosts.now()
            elif hosts.now() - alone_since > PATIENCE:
                lost = "; ".join(f"{h}: {w.lost}" for h, w in self.outcome.work.items() if w.lost)
                raise TryAgain(
                    f"no host is left ({lost or 'none has come'}) after step"
                    f" {self.outcome.iteration} of {self._job.steps}"
                )
        self.outcome.seconds = hosts.now() - began
        for host, member in self._members.items():
            if member.power > 0 and host in self._loads:
                cells = self._loads[host].cells
                self._models.learn(self._kind, host, cells, cells / member.power)
        return self.outcome

    # ---- membership

    def _welcome(self, host: str) -> None:
        if host in self._members:  # it came as the job began
            return
        if self._strikes[host] >= MAX_STRIKES:
            return
        self._members[host] = _Host(self._hosts.now())
        self._hosts.open(host)

    def _lose(self, host: str, reason: str) -> None:
        active = self._active()
        member = self._members.pop(host, None)
        if member is None:
            return
        self.outcome.work.setdefault(host, StencilWork()).lost = reason
        if not member.has_worked:
            self._strikes[host] += 1
            if self._strikes[host] == MAX_STRIKES:
                self._warn(f"{host} takes no part any more: {reason}")
        if active and min(member.iteration for member in active) >= 0:
            self._losses += 1  # hosts that go together count once: no cut is complete between
            if self._losses == MAX_LOSSES:
                raise JobFailed(
                    f"{MAX_LOSSES} times hosts were lost before step {self._farthest + 1}, the"
                    f" last one {host}: {reason}"
                )
        if host in self._names:
            self._go_back()

    def _take(self, host: str, notice: orders.Notice) -> None:
        member, is_present = self._members[host], False
        if not isinstance(notice, orders.Opened | orders.Saved):
            is_present = notice.generation == self._generation
        match notice:
            case orders.Opened(_, savings):
                member.savings = savings
            case orders.Ready(seconds=seconds) if is_present:
                member.iteration = self.outcome.iteration
                self._ready_seconds = max(self._ready_seconds, seconds)
            case orders.Swept() if is_present:
                self._add(host, member, notice)
            case orders.Saved(_, name, owner, seconds, error):
                if self._saving is not None and name == self._saving.name:
                    self._missing.discard((owner, host))
                    self._save_seconds = max(self._save_seconds, seconds)
                    if error:
                        self._warn(f"{host}: no checkpoint: {error}")
                        self._saving, self._saved_at = None, self._hosts.now()
            case orders.Unusable(host=other, reason=reason) if (
                is_present and other in self._members
            ):
                self._members[other].has_worked = False
                self._hosts.drop(other, reason)
            case orders.Unreadable(reason=reason) if is_present:
                self._warn(f"{host}: {reason}")
                self._checkpoint = None
                self._go_back()
            case orders.Collected() if is_present:
                member.is_collected = True

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        if len(self.outcome.warnings) < MAX_WARNINGS:
            self.outcome.warnings.append(text)

    def _add(self, host: str, member: _Host, swept: orders.Swept) -> None:
        if self.outcome.cuts and not member.sweeps:  # those of the first cut compile kernels
            self._first_seconds = max(self._first_seconds, swept.seconds - swept.computing)
        member.has_worked = True
        member.lengths.append(swept.iteration - member.iteration)
        member.sweeps.append(swept)
        member.iteration = swept.iteration
        member.power = self._loads[host].cells / member.of_step(lambda s: s.seconds)
        work = self.outcome.work[host]
        work.sweeps += 1
        work.seconds += swept.seconds
        work.computing += swept.computing
        work.waiting += swept.waiting
        self._tell(self.outcome)

    # ---- the next step

    def _go_on(self) -> None:
        """Order what comes next, if the hosts are far enough."""
        now = self._hosts.now()
        for host, member in list(self._members.items()):
            if member.savings is None and now - member.since > OPENING:
                self._hosts.drop(host, "it hasn't opened the job")
        open_ones = [h for h, member in self._members.items() if member.savings is not None]
        if not self._held:
            if open_ones and len(open_ones) == len(self._members):
                self._begin(open_ones)
            return
        active = self._active()
        if not active or min(member.iteration for member in active) < 0:
            return
        self._end_save(now)
        floor = min(member.iteration for member in active)
        has_advanced, self.outcome.iteration = floor > self.outcome.iteration, floor
        if floor > self._farthest:
            self._farthest, self._losses = floor, 0
        if self._is_collecting:
            return
        if floor == self._job.steps:
            self._is_collecting = True
            for host in {held.host for held in self._held}:
                self._hosts.order(host, orders.Collect(self._epoch, self._generation))
        elif self._stops:
            if floor == self._until:
                self._cut(open_ones, self._held, floor)
        else:
            if has_advanced or set(open_ones) != set(self._names):
                self._stops = self._until < self._job.steps and self._wants_cut(open_ones)
            ahead = self._until - floor
            if not self._stops and ahead < LEAD * self._width and self._until < self._job.steps:
                self._advance(floor, now)

    def _active(self) -> list[_Host]:
        """Return the hosts with cells; none, unless all are there."""
        names = {held.host for held in self._held}
        if not names.issubset(self._members):
            return []
        return [self._members[name] for name in names]

    def _advance(self, floor: int, now: float) -> None:
        until = min(self._job.steps, floor + LEAD * self._width)
        pause = max(self._every, SAVE_PART * self._save_seconds)
        saves = self._saving is None and now - self._saved_at > pause and until < self._job.steps
        active = sorted({held.host for held in self._held})
        keeper = dict(zip(active, [*active[1:], active[0]], strict=True))
        if saves:
            name = f"{self._name}-{self._generation}-{until}"
            self._saving = _Checkpoint(name, until, self._held, keeper)
            self._missing = {(host, host) for host in active}
            self._missing |= set(keeper.items())
            self._saving_since = now
        self._until = until
        for host in active:
            order = orders.Advance(
                self._epoch,
                self._generation,
                until,
                save=self._saving.name if saves and self._saving else "",
                keeper=keeper[host] if keeper[host] != host else "",
                keep=self._checkpoint.name if self._checkpoint else "",
            )
            self._hosts.order(host, order)

    def _end_save(self, now: float) -> None:
        if self._saving is not None and not self._missing:
            self._checkpoint, self._saving = self._saving, None
            self._saved_at = now
            self._strikes.clear()
            self.outcome.checkpoints += 1
        elif self._saving is not None and now - self._saving_since > SLOW_SAVE:
            self._saving_since = math.inf
            writers = ", ".join(sorted({writer for _, writer in self._missing}))
            self._warn(f"no checkpoint for {SLOW_SAVE:g} s: {writers} haven't written it yet")

    # ---- cuts

    def _begin(self, names: Sequence[str]) -> None:
        """Begin with the latest whole checkpoint of an earlier job like this, or the inputs."""
        found: dict[tuple[int, str], dict[Box, str]] = {}
        for host in names:
            for saving in self._members[host].savings or ():
                boxes = found.setdefault((saving.iteration, saving.name), {})
                boxes |= dict.fromkeys(saving.boxes, host)
        for (iteration, name), boxes in sorted(found.items(), reverse=True):
            if 0 < iteration < self._job.steps and covers(list(boxes), self._job.shape):
                self.outcome.continued = self.outcome.iteration = iteration
                held = tuple(Held(host, box) for box, host in boxes.items())
                self._checkpoint = _Checkpoint(name, iteration, held, {})
                self._cut(names, held, iteration, name)
                return
        self._cut(names, self._inputs(), 0)

    def _inputs(self) -> tuple[Held, ...]:
        return (Held("", Box.whole(self._job.shape)),)

    def _go_back(self) -> None:
        """Go on after the last checkpoint of which all is left, or from the inputs."""
        self._is_collecting = False
        self._saving = None
        reached, self._held = self.outcome.iteration, ()
        names = [h for h, member in self._members.items() if member.savings is not None]
        saved = self._checkpoint
        sources, iteration, name = self._inputs(), 0, ""
        if saved is not None:
            held = []
            for host, box in saved.held:
                where = host if host in self._members else saved.copies.get(host, "")
                if where in self._members:
                    held.append(Held(where, box))
            if len(held) == len(saved.held):
                sources, iteration, name = tuple(held), saved.iteration, saved.name
            else:
                self._checkpoint = None
        self.outcome.continued = min(self.outcome.continued, iteration)
        self.outcome.again += reached - iteration
        self.outcome.iteration = iteration
        if names:
            self._cut(names, sources, iteration, name)
        else:
            self._generation += 1

    def _cut(
        self, names: Sequence[str], sources: tuple[Held, ...], iteration: int, saved: str = ""
    ) -> None:
        """Give each of `names` its quota; `sources` have the cells."""
        mapping, moved = self._chosen(names)
        held = self._rectangles(mapping, names)
        loads, costs = self._loads_of(held), self._costs()
        width = min(WIDTH, self._limit)
        if costs:
            _, width = _Prices(costs, loads).best(self._limit)
        if self._mapping is not None:
            self.outcome.cuts += 1
            self.outcome.moved += moved
        self._mapping, self._names, self._held, self._width = mapping, list(names), held, width
        self._loads, self._dear = loads, []
        self._generation += 1
        self._ready_seconds = self._first_seconds = 0.0
        self._until, self._stops, self._is_collecting = iteration, False, False
        self.outcome.width, self.outcome.blocks = width, len(mapping.grid)
        for host, blocks in zip(names, mapping.held.tolist(), strict=True):
            member = self._members[host]
            member.iteration, member.is_collected = -1, False
            member.sweeps.clear()
            member.lengths.clear()
            self.outcome.work.setdefault(host, StencilWork()).blocks = blocks
            self.outcome.work[host].lost = ""
        depth = width * self._job.reach
        order = orders.Cut(
            self._epoch, self._generation, iteration, depth, sources, self._held, saved
        )
        for host in {*names} | {h for h, _ in sources if h in self._members}:
            self._hosts.order(host, order)

    def _chosen(self, names: Sequence[str]) -> tuple[Mapping, int]:
        """As `_mapped`, or the present mapping if its rectangles cost less."""
        mapping, moved = self._mapped(names)
        before, costs = self._mapping, self._costs()
        if before is not None and list(names) == self._names and len(costs) == len(self._loads):
            present, other = (
                _Prices(costs, loads).best(self._limit)[0]
                for loads in (self._loads, self._loads_of(self._rectangles(mapping, names)))
            )
            if present <= other:
                return before, 0
        return mapping, moved

    def _mapped(self, names: Sequence[str]) -> tuple[Mapping, int]:
        """Return who gets which block, and how many of those that somebody has move."""
        powers = np.array([self._power(name) for name in names])
        powers[np.isnan(powers)] = np.nanmean(powers) if not np.isnan(powers).all() else 1.0
        before = self._mapping
        if before is None:
            grid = Grid(_blocks(self._job.shape, BLOCKS * len(names)), corners=True)
            tree = _star(len(names))
            quota = quotas(tree, len(grid), powers)
            mapping = Mapping.shared_out(grid, tree, quota)
            mapping.refine()
            return mapping, 0
        grid = before.grid
        gone = [name for name in self._names if name not in names]
        every = [*names, *gone]
        number = np.array([every.index(name) for name in self._names])
        home: Ints = number[before.owner]
        mapping = Mapping(grid, home, len(every))
        tree = _star(len(every))
        quota = quotas(tree, len(grid), [*powers, *[0.0] * len(gone)])
        try:
            flows = cheapest_flows(mapping.pairs, mapping.held, quota)
        except UsageError:  # some hosts have no blocks yet
            flows = tree_flows(tree, mapping.held, quota)
        mapping.ship(flows)
        mapping = Mapping(grid, mapping.owner, len(names))
        mapping.refine(home)
        return mapping, int((mapping.owner != home).sum())

    def _power(self, host: str) -> float:
        """Return the cells a second of this job, or of those before."""
        known = self._members[host].power
        if math.isnan(known):
            model = self._models.model(self._kind, host)
            cells = self._job.shape[0] * self._job.shape[1] / len(self._members)
            known = cells / float(model.time(cells)) if model is not None else math.nan
        return known

    @property
    def _limit(self) -> int:
        """Return the steps of the longest sweep: frames mustn't wrap around the grid."""
        return max(1, min(self._job.steps, min(self._job.shape) // 2 // self._job.reach))

    def _wants_cut(self, names: Sequence[str]) -> bool:
        """Whether other quotas, hosts or a width save more than a cut takes, and over 5 %."""
        left = self._job.steps - self._until
        if set(names) != set(self._names):
            return left > 0
        costs = self._costs()
        powers = [self._power(name) for name in names]
        if len(costs) < len(self._loads) or any(math.isnan(power) for power in powers):
            return False
        assert self._mapping is not None
        prices = _Prices(costs, self._loads)
        now = prices.step(self._width)
        quota = quotas(_star(len(names)), len(self._mapping.grid), powers)
        cells = self._job.shape[0] * self._job.shape[1] / len(self._mapping.grid)
        best = max(float(q) * cells / power for q, power in zip(quota, powers, strict=True))

        def pays(then: float) -> bool:
            cut = self._ready_seconds + self._first_seconds
            return now - then > GAIN * now and (now - then) * left > cut

        if pays(prices.best(self._limit)[0]):
            return True
        if not pays(best) or quota.tolist() == self._dear:
            return False
        # Other quotas may make rectangles that cost more than they save.
        held = self._rectangles(self._mapped(names)[0], names)
        if pays(_Prices(costs, self._loads_of(held)).best(self._limit)[0]):
            return True
        self._dear = quota.tolist()
        return False

    def _rectangles(self, mapping: Mapping, names: Sequence[str]) -> tuple[Held, ...]:
        rows, columns = mapping.grid.shape
        return tuple(rectangles(mapping.owner, (rows, columns), names, self._job.shape))

    def _loads_of(self, held: Sequence[Held]) -> dict[str, _Load]:
        job, loads = self._job, dict[str, _Load]()
        for host, box in held:
            frame = box.framed(job.reach, job.shape, job.periodic).cells - box.cells
            before = loads.get(host, _Load(0, 0, 0))
            loads[host] = _Load(before.boxes + 1, before.cells + box.cells, before.frame + frame)
        return loads

    def _costs(self) -> dict[str, _Cost]:
        """Return what the last sweeps tell of hosts, of those that have done some."""
        costs = {}
        for host, load in self._loads.items():
            member = self._members.get(host)
            if member is not None and len(member.sweeps) == RECENT:
                step = member.of_step(lambda s: s.computing)
                cells = load.cells + load.frame * self._width
                costs[host] = _Cost(member.overhead / load.boxes, step / cells)
        return costs


class _Load(NamedTuple):
    """What a host holds: `frame` cells around its rectangles for each step of a sweep."""

    boxes: int
    cells: int
    frame: int


class _Cost(NamedTuple):
    """Seconds of a host: of a sweep for each rectangle, and of a step for each cell."""

    box: float
    cell: float


class _Prices:
    """The time of a step by the length of sweeps, where hosts have `loads`: of the slowest one."""

    def __init__(self, costs: dict[str, _Cost], loads: dict[str, _Load]) -> None:
        worst = _Cost(max(c.box for c in costs.values()), max(c.cell for c in costs.values()))
        known = np.array([costs.get(host, worst) for host in loads])
        boxes, cells, frame = np.array(list(loads.values()), float).T
        self._sweep, self._step = boxes * known[:, 0], cells * known[:, 1]
        self._frame = frame * known[:, 1]

    def step(self, width: int) -> float:
        return float((self._sweep / width + self._step + self._frame * width).max())

    def best(self, limit: int) -> tuple[float, int]:
        """Return the shortest time, and the length of sweeps, at most `limit`, that it takes."""
        low, high = 1, limit
        while high - low > 2:  # the time falls, then rises
            third = (high - low) // 3
            if self.step(low + third) <= self.step(high - third):
                high -= third
            else:
                low += third
        return min((self.step(width), width) for width in range(low, high + 1))


def _star(hosts: int) -> Tree:
    """Every host reaches every other one: the first is the parent of all."""
    return Tree((-1, *[0] * (hosts - 1)))


def _blocks(shape: Shape, count: int) -> Shape:
    """Return rows and columns of about `count` blocks, about square; at least 3 of each."""
    if min(shape) < 3:
        raise UsageError(f"a grid of {shape[0]}x{shape[1]} is too small for several hosts")
    side = math.sqrt(shape[0] * shape[1] / count)
    rows, columns = (max(3, min(cells, round(cells / side))) for cells in shape)
    return rows, columns
