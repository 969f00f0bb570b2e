"""Which host computes which units of a job, until all are done. Pure but for the clock.

Each host is a device with a total speed function that includes its link: the seconds from the
first part sent to the last result. A job's load is split by these functions; each host gets its
share in parts, two at a time so that one travels while another is computed, and the last ones are
handed out late, smaller and smaller, to whoever is free: a wrong prediction costs a small part.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple, Protocol

import msgspec

from hetsched.errors import HetschedError, JobFailed, TryAgain
from hetsched.models import PiecewiseLinear
from hetsched.partition import geometric
from hetsched.text import columns, number
from hetsched.units import counted

log = logging.getLogger(__name__)

PARTS = 8
"""Of a host's share, before the last ones get smaller."""
SMALLEST = 16
"""Parts of this size, relative to the first ones, aren't halved again."""
PART_BYTES = 128 << 20
"""Of a part's inputs at most: hosts and the coordinator hold parts whole, however big the load."""
IN_FLIGHT = 2
"""Parts of a host at a time; of one that nothing is known of a small one alone."""
RUNS = 25
"""The last ones of a kind and host, which a model keeps."""
MAX_LOSSES = 5
"""Of hosts that were computing a part: it is what ends them."""
LINK = "link"
"""The kind of what is known of links: bytes, and their seconds."""
KINDS = 200
"""The last ones whose speeds are kept."""
PATIENCE = 30.0
"""Seconds in which a host has to come when none is left."""
NEAREST = 5
"""Runs whose median is a model's pace at a size."""


@dataclass(frozen=True)
class Share:
    """`count` units from `first` on; a late result of an earlier `epoch` counts for nothing."""

    epoch: int
    first: int
    count: int


class Added(NamedTuple):
    host: str


class Lost(NamedTuple):
    host: str
    reason: str


class Done(NamedTuple):
    host: str
    share: Share
    seconds: float
    """On the host itself, without the link."""


class Failed(NamedTuple):
    host: str
    share: Share
    error: HetschedError


Event = Added | Lost | Done | Failed


class Membership(Protocol):
    """What a coordinator knows of the hosts, and hears of them."""

    def hosts(self) -> Sequence[str]:
        """Return the hosts that can be given work, those that `event` has reported included."""

    def event(self, seconds: float) -> Any:
        """Wait for the next event; None if there is none for so long."""

    def now(self) -> float:
        """Return the time in seconds, of any origin."""


class Hosts(Membership, Protocol):
    def send(self, host: str, share: Share) -> None:
        """Have `host` compute a share of the present job. Never blocks; a lost host is ignored."""


Runs = dict[str, dict[str, list[tuple[int, float]]]]


class HostModels:
    """Kind of job and host -> (units, seconds) of the last runs, kept in the file `path`."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.runs: Runs = {}
        if path is not None and path.exists():
            try:
                self.runs = msgspec.json.decode(path.read_bytes(), type=Runs)
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("%s can't be read, speeds are learnt anew: %s", path, error)

    def learn(self, kind: str, host: str, units: int, seconds: float) -> None:
        of_kind = self.runs.pop(kind, {})
        self.runs[kind] = of_kind  # the latest kind is the last
        runs = of_kind.setdefault(host, [])
        runs.append((units, seconds))
        del runs[:-RUNS]
        while len(self.runs) > KINDS:
            del self.runs[next(iter(self.runs))]

    def save(self) -> None:
        """Write them; a failure is logged, as they are learnt again."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            hidden = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            hidden.write_bytes(msgspec.json.encode(self.runs))
            hidden.replace(self._path)
        except OSError as error:
            log.warning("speeds of hosts can't be saved: %s", error)

    def model(self, kind: str, host: str) -> PiecewiseLinear | None:
        """Return seconds as a function of units; None before the first run.

        The pace at a size is the median of the nearest runs, so that no single one decides; of two
        it is the faster, as a first run is often slow.
        """
        runs = self.runs.get(kind, {}).get(host)
        if not runs:
            return None
        model = PiecewiseLinear()
        for size in sorted({units for units, _ in runs}):
            near = sorted(runs, key=lambda run: abs(math.log(run[0] / size)))[:NEAREST]
            model.observe(size, size * median_low(seconds / units for units, seconds in near))
        return model


@dataclass
class HostWork:
    """What one host did of a job: for `explain`, and to learn from."""

    planned: int | None = None
    units: int = 0
    parts: int = 0
    computing: float = 0.0
    """Seconds on the host itself."""
    first: float = math.nan
    last: float = math.nan
    lost: str = ""

    @property
    def seconds(self) -> float:
        """From the first part sent to the last result."""
        return self.last - self.first if self.units else 0.0


FIELDS = ("planned", "units", "parts", "seconds", "computing")


def table(fields: Sequence[str], work: Mapping[str, Any]) -> list[str]:
    """Return what each host did, a line each."""

    def cell(value: float | None) -> str:
        if value is None:
            return "-"
        return number(value) if isinstance(value, float) else str(value)

    rows = [
        [host, *(cell(getattr(each, name)) for name in fields), each.lost and f"lost: {each.lost}"]
        for host, each in work.items()
    ]
    return columns(("host", *fields, ""), rows, 1, None)


@dataclass
class Outcome:
    """What became of a job: host -> work, units computed again, seconds in all."""

    load: int
    work: dict[str, HostWork] = field(default_factory=dict)
    again: int = 0
    seconds: float = 0.0

    @property
    def spread(self) -> float:
        """Relative difference of the times at which hosts ended; 0.0 for one."""
        ends = [w.last for w in self.work.values() if w.units and not w.lost]
        return (max(ends) - min(ends)) / self.seconds if len(ends) > 1 and self.seconds else 0.0

    def explain(self) -> str:
        """Return a table of hosts and what they did."""
        load, seconds = counted(self.load, "unit"), number(self.seconds)
        head = f"{load} in {seconds} s, spread {self.spread:.0%}"
        if self.again:
            head += f", {counted(self.again, 'unit')} of lost hosts again"
        return "\n".join([head, *table(FIELDS, self.work)])

    def record(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        names = (*FIELDS, "lost")
        return {
            "load": self.load,
            "seconds": self.seconds,
            "spread": self.spread,
            "again": self.again,
            "hosts": [
                {"host": host, **{name: getattr(work, name) for name in names}}
                for host, work in self.work.items()
            ],
        }


class Follower:
    """Calls what the caller has given, if anything, until it fails."""

    def __init__(self, follow: Callable[[Any], object] | None) -> None:
        self._follow = follow

    def __call__(self, outcome: Any) -> None:
        if self._follow is not None:
            try:
                self._follow(outcome)
            except Exception:
                log.exception("a callback has failed; it isn't called again")
                self._follow = None


class Coordinator:
    """Runs one job of `load` units of a `kind` over `hosts`, and learns from it.

    `is_cancelled` is asked each quarter of a second. `follow` is called after each part.
    """

    def __init__(
        self,
        hosts: Hosts,
        models: HostModels,
        kind: str,
        load: int,
        epoch: int,
        *,
        granule: int = 1,
        unit_bytes: int = 0,
        follow: Callable[[Outcome], object] | None = None,
    ) -> None:
        self._hosts, self._models, self._kind = hosts, models, kind
        self._epoch, self._granule, self._unit_bytes = epoch, granule, unit_bytes
        self._tell = Follower(follow)
        self._free: deque[tuple[int, int, int]] = deque([(0, load, 0)])
        """First unit, number, hosts lost with them."""
        self._given: dict[str, dict[Share, int]] = {}
        """Host -> its parts, and the hosts lost with each before."""
        self._weights: dict[str, float] = {}
        self._rates: dict[str, float] = {}
        """Host -> units a second in this job."""
        self.outcome = Outcome(load)

    def run(self, is_cancelled: Callable[[], bool] = lambda: False) -> Outcome:
        """Return once all units are done. Raises the first error of a host, or TryAgain."""
        hosts, outcome = self._hosts, self.outcome
        began = hosts.now()
        alone_since = began
        left = outcome.load
        for host in hosts.hosts():
            self._given[host] = {}
        self._weigh()
        while left and not is_cancelled():
            self._feed()
            event = hosts.event(0.25)
            match event:
                case Added(host):
                    self._given.setdefault(host, {})
                    self._weigh()
                case Lost(host, reason):
                    self._lose(host, reason)
                    self._weigh()
                case Done(host, share, seconds):
                    if share in self._given.get(host, ()):
                        del self._given[host][share]
                        left -= share.count
                        work = outcome.work[host]
                        work.units += share.count
                        work.computing += seconds
                        work.last = hosts.now()
                        if work.seconds > 0:
                            self._rates[host] = work.units / work.seconds
                        self._tell(self.outcome)
                case Failed(host, share, error):
                    if share in self._given.get(host, ()):
                        raise error
            if self._given:
                alone_since = hosts.now()
            elif hosts.now() - alone_since > PATIENCE:
                reasons = "; ".join(f"{h}: {w.lost}" for h, w in outcome.work.items() if w.lost)
                raise TryAgain(
                    f"no host is left ({reasons or 'none has come'}); {left} of {outcome.load}"
                    " units aren't done"
                )
        outcome.seconds = hosts.now() - began
        if not left:
            for host, work in outcome.work.items():
                if work.units and not work.lost:
                    self._models.learn(self._kind, host, work.units, work.seconds)
        return outcome

    def _lose(self, host: str, reason: str) -> None:
        """Free what a lost host had. Raises JobFailed if that has ended several."""
        lost = self._given.pop(host, {})
        self._rates.pop(host, None)
        self.outcome.work.setdefault(host, HostWork()).lost = reason
        for share, before in lost.items():
            if before + 1 == MAX_LOSSES:
                last = share.first + share.count - 1
                raise JobFailed(
                    f"{MAX_LOSSES} hosts were lost with units {share.first} to {last}, the last"
                    f" one {host}: {reason}"
                )
            self._free.appendleft((share.first, share.count, before + 1))
            self.outcome.again += share.count

    def _weigh(self) -> None:
        """Split the load by the models; hosts without one count as the mean of the others.

        Less by as much as their links are slower than the fastest of theirs, if these are known:
        over a slow link the first part, which shows more, is to be a small one.
        """
        models = {host: self._models.model(self._kind, host) for host in self._given}
        known = {host: model for host, model in models.items() if model is not None}
        load = self.outcome.load
        weights: dict[str, float] = {}
        if known:
            weights = dict(zip(known, geometric(list(known.values()), load).shares, strict=True))
        mean = load / max(len(known), 1)
        links = {}
        for host in [host for host in self._given if host not in known]:
            link, size = self._models.model(LINK, host), mean * self._unit_bytes
            if link is not None and size:
                links[host] = float(link.time(size))
            weights[host] = mean
        for host, seconds in links.items():
            weights[host] *= min(links.values()) / seconds
        total = sum(weights.values())
        self._weights = {host: weight / total for host, weight in weights.items() if total}
        for host in known:
            work = self.outcome.work.setdefault(host, HostWork())
            if work.planned is None:
                work.planned = round(load * self._weights[host])

    def _speed(self, host: str) -> float:
        """Return the host's part of the load, by this job's own times once there are some."""
        if host not in self._rates:
            return self._weights[host]
        # What the measured ones have of the load by plan, they share by their measured speed.
        planned = sum(self._weights[h] for h in self._rates)
        return planned * self._rates[host] / sum(self._rates.values())

    def _feed(self) -> None:
        """Give each host with less than two parts another, hosts with none first."""
        for depth in range(IN_FLIGHT):
            for host, given in self._given.items():
                if not self._free:
                    return
                if len(given) == depth and (depth == 0 or self._is_measured(host)):
                    self._give(host, given)

    def _is_measured(self, host: str) -> bool:
        work = self.outcome.work.get(host)
        return work is not None and (work.planned is not None or work.units > 0)

    def _give(self, host: str, given: dict[Share, int]) -> None:
        speed = self._speed(host)
        if speed <= 0 and any(self._given[other] for other in self._given if other != host):
            return
        rest = sum(count for _, count, _ in self._free)
        part = self.outcome.load / PARTS
        wanted = part / SMALLEST
        if self._is_measured(host):
            wanted = max(min(part, rest / 2), wanted)
        most = PART_BYTES // max(self._unit_bytes, 1)
        wanted = max(1, min(math.ceil(wanted * speed), most))
        wanted = -(-wanted // self._granule) * self._granule
        first, count, losses = self._free.popleft()
        if count > wanted:
            self._free.appendleft((first + wanted, count - wanted, losses))
            count = wanted
        share = Share(self._epoch, first, count)
        given[share] = losses
        work = self.outcome.work.setdefault(host, HostWork())
        work.parts += 1
        if math.isnan(work.first):
            work.first = self._hosts.now()
        self._hosts.send(host, share)
