"""The neighbours of a device, which slow it down, and sets of devices without some. Pure.

Cores and devices with a link share the memory bandwidth of their NUMA node. A node that isn't
known counts as shared with all. Devices whose speed is configured share nothing.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hetsched.device import DeviceInfo
from hetsched.models import DeviceModel
from hetsched.models.functions import planner_curve
from hetsched.models.samples import CO_RUNNERS, CoRunners
from hetsched.models.windows import MAX_STEP
from hetsched.text import group_name


def co_runners_of(
    infos: Sequence[DeviceInfo], machine: Iterable[DeviceInfo] = ()
) -> dict[str, CoRunners]:
    """Return device -> which of its neighbours are busy when all of `infos` run.

    `machine`: all its devices; those of `infos` are added.
    """
    every = list({info.name: info for info in (*machine, *infos)}.values())
    of_kind: dict[object, CoRunners] = {}
    beside = {}
    for info in infos:
        kind = info.is_modelled, info.is_core, info.threads, info.numa_node
        if kind not in of_kind:
            linked, cores = _beside(info, infos)
            all_linked, all_cores = _beside(info, every)
            if info.is_modelled or not (linked or cores):
                of_kind[kind] = "none"
            elif linked >= all_linked and cores >= 0.75 * all_cores:  # one idle core is nothing
                of_kind[kind] = "all"
            else:
                of_kind[kind] = "some"
        beside[info.name] = of_kind[kind]
    return beside


def _beside(info: DeviceInfo, infos: Iterable[DeviceInfo]) -> tuple[int, int]:
    """Return the devices with a link and the cores on its NUMA node, less its own.

    Cores of a team, unless they are there themselves.
    """
    real = [each for each in infos if not each.is_modelled]
    names = {each.name for each in real}
    near = [
        each for each in real if info.numa_node in (None, each.numa_node) or each.numa_node is None
    ]
    linked = sum(not each.is_core for each in near)
    cores = sum(each.threads for each in near if each.is_core and names.isdisjoint(each.members))
    if info.is_core:
        return linked, max(0, cores - info.threads)
    return max(0, linked - 1), cores


def co_runners_end(
    infos: Sequence[DeviceInfo], ends: Iterable[tuple[DeviceInfo, float]]
) -> dict[str, float]:
    """Return device -> when its first co-runner finished, seconds; infinite: there was none.

    `ends`: the last end of each device with a share, on one clock.
    """
    real = [(end, info.name) for info, end in ends if not info.is_modelled]
    (first, device), (second, _), *_ = [*heapq.nsmallest(2, real), (math.inf, ""), (math.inf, "")]
    found = {info.name: second if info.name == device else first for info in infos}
    return found | {info.name: math.inf for info in infos if info.is_modelled}


def possible_models(
    models: Mapping[CoRunners, dict[str, DeviceModel]], runs: Mapping[CoRunners, Mapping[str, int]]
) -> Mapping[CoRunners, Mapping[str, DeviceModel]]:
    """Return the models by co-runners and variant, without impossible ones.

    No device is many times as fast beside more neighbours as beside fewer: one of the two was
    misread, that of fewer `runs`, or else that beside more, which may not be measured again:
    while a device seems that fast, others may get no share.
    """
    for fewer, more in itertools.combinations(CO_RUNNERS, 2):
        for variant in models.get(fewer, {}).keys() & models.get(more, {}).keys():
            evidence = planner_curve(models[fewer][variant].total).evidence()
            if evidence is None:
                continue
            units, seconds, _ = evidence.latest()[0]
            if float(models[more][variant].total.time(units)) * MAX_STEP < seconds:
                is_rarer = runs[fewer][variant] < runs[more][variant]
                del models[fewer if is_rarer else more][variant]
    return models


# ---- sets of devices


@dataclass(frozen=True)
class DeviceSet:
    """Devices that do a job together, in its order. `variants`: the only one that some may use."""

    infos: tuple[DeviceInfo, ...]
    variants: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(info.name for info in self.infos)

    @property
    def label(self) -> str:
        linked = [info.name for info in self.infos if info.link]
        cores = [info.name for info in self.infos if not info.link]
        return ", ".join(group_name(names) for names in (linked, cores) if names)


def device_sets(infos: Sequence[DeviceInfo]) -> list[DeviceSet]:
    """Return the sets to consider, all devices but teams first.

    With links and cores: all devices with a link with half of the cores, one, none; the cores
    alone. Where physical cores have several hardware threads: one thread of each. With teams: each
    instead of its members. Devices of configured speed share nothing, so only teams are
    considered for them. Trying all subsets would take far too long.
    """
    names = {info.name for info in infos}
    teams = [info for info in infos if names.intersection(info.members)]
    single = [info for info in infos if info not in teams]
    sets = [DeviceSet(tuple(single))]
    chosen: list[frozenset[str]] = []
    if sum(not info.is_modelled for info in single) >= 2:
        chosen = _subsets(single)
    for subset_names in chosen:
        subset = DeviceSet(tuple(info for info in single if info.name in subset_names))
        if subset.infos and subset not in sets:
            sets.append(subset)
    for team in teams:
        others = [info for info in single if info.name not in team.members]
        sets.append(DeviceSet((*others, team)))
    return sets


def _subsets(infos: Sequence[DeviceInfo]) -> list[frozenset[str]]:
    linked = [info.name for info in infos if info.link]
    ranks = _thread_ranks(infos)
    cores = sorted((info.name for info in infos if not info.link), key=lambda name: ranks[name])
    single_threads = [name for name in cores if ranks[name] == 0]
    chosen: list[list[str]] = []
    if linked:
        half = (len(cores) + 1) // 2
        chosen += [linked + cores[:half], linked + cores[:1], linked, cores]
    if len(single_threads) < len(cores):
        chosen += [linked + single_threads, single_threads]
    return list(map(frozenset, chosen))


def _thread_ranks(infos: Sequence[DeviceInfo]) -> Mapping[str, int]:
    """Return core -> its number among the hardware threads of its physical core."""
    threads: Counter[int] = Counter()
    ranks = {}
    for info in infos:
        if info.link:
            continue
        ranks[info.name] = 0
        if info.physical_core is not None:
            ranks[info.name] = threads[info.physical_core]
            threads[info.physical_core] += 1
    return ranks
