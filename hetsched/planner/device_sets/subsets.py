"""The sets of devices that are planned as ways to do a job, besides core teams. Pure.

Devices that share a resource may do the job sooner without some of the others. Trying all subsets
would take far too long, so only a few are considered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hetsched.device import DeviceInfo
from hetsched.text import group_name


@dataclass(frozen=True)
class DeviceSet:
    """Some devices of a job.

    Attributes
    ----------
    infos : tuple of DeviceInfo
        In the job's order.
    """

    infos: tuple[DeviceInfo, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(info.name for info in self.infos)

    @property
    def label(self) -> str:
        """Its devices: "gpu0, cpu0 to cpu7"."""
        linked = [info.name for info in self.infos if info.link]
        cores = [info.name for info in self.infos if not info.link]
        return ", ".join(group_name(names) for names in (linked, cores) if names)


def device_sets(infos: Sequence[DeviceInfo]) -> list[DeviceSet]:
    """Return the sets to consider, all devices first; only these if nothing is shared.

    With links and cores: all devices with a link with half of the cores, one, none; the cores
    alone. Where physical cores have several hardware threads: one thread of each.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        Without core teams.
    """
    all_devices = DeviceSet(tuple(infos))
    if sum(not info.is_modelled for info in infos) < 2:
        return [all_devices]
    linked = [info.name for info in infos if info.link]
    ranks = _thread_ranks(infos)
    cores = sorted((info.name for info in infos if not info.link), key=lambda name: ranks[name])
    single_threads = [name for name in cores if ranks[name] == 0]
    chosen: list[Collection[str]] = []
    if linked:
        half = (len(cores) + 1) // 2
        chosen += [linked + cores[:half], linked + cores[:1], linked, cores]
    if len(single_threads) < len(cores):
        chosen += [linked + single_threads, single_threads]
    sets = [all_devices]
    for names in chosen:
        subset = DeviceSet(tuple(info for info in infos if info.name in names))
        if subset.infos and subset not in sets:
            sets.append(subset)
    return sets


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
