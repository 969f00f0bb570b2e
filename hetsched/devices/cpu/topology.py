"""Physical cores, hardware threads, core types and NUMA nodes, read from sysfs.

A pure function of the files below a root folder. Whatever a machine doesn't say is left out: a
virtual machine may have no types and no nodes, a container no sysfs at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")
PERFORMANCE, EFFICIENCY = "performance", "efficiency"
MIN_SPEED_RATIO = 0.8
"""Highest clock of a core, over that of the fastest, from which it is of the same type: favoured
cores differ by a few percent. Arbitrary."""


@dataclass(frozen=True)
class HardwareThread:
    """What the kernel calls a CPU."""

    cpu: int
    physical_core: int
    """The lowest number of its core's threads, online or not."""
    core_type: str = ""
    """"performance", "efficiency", "capacity 446" (Arm); empty if all cores are of one type."""
    numa_node: int | None = None


def read_topology(cpus: Iterable[int], root: Path | None = None) -> list[HardwareThread]:
    """Return the topology of `cpus`, in their order; `root`: where sysfs is mounted.

    Types are those of the whole machine: a process confined to efficiency cores knows that they
    are such.
    """
    root = root or SYSFS
    folder = root / "devices/system/cpu"
    types = _core_types(root, folder)
    nodes = _nodes(root / "devices/system/node")
    return [
        HardwareThread(cpu, _physical_core(folder, cpu), types.get(cpu, ""), nodes.get(cpu))
        for cpu in cpus
    ]


def one_per_core(threads: Iterable[HardwareThread]) -> list[HardwareThread]:
    first: dict[int, HardwareThread] = {}
    for thread in threads:
        first.setdefault(thread.physical_core, thread)
    return list(first.values())


def _physical_core(folder: Path, cpu: int) -> int:
    topology = folder / f"cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second before Linux 5.3
        siblings = cpu_list(topology / name)
        if siblings:
            return min(siblings)
    return cpu


def _core_types(root: Path, folder: Path) -> dict[int, str]:
    """Return the type of each CPU; empty if there is only one type."""
    hybrid = {
        cpu: core_type
        for core_type, name in ((PERFORMANCE, "cpu_core"), (EFFICIENCY, "cpu_atom"))
        for cpu in cpu_list(root / "devices" / name / "cpus")
    }
    capacities = {cpu: f"capacity {n}" for cpu, n in _numbers(folder, "cpu_capacity").items()}
    clocks = _numbers(folder, "cpufreq/cpuinfo_max_freq")
    slow = MIN_SPEED_RATIO * max(clocks.values(), default=0)
    speeds = {cpu: EFFICIENCY if n < slow else PERFORMANCE for cpu, n in clocks.items()}
    each = (hybrid, capacities, speeds)
    return next((types for types in each if len(set(types.values())) > 1), {})


def _nodes(folder: Path) -> dict[int, int]:
    return {
        cpu: int(path.name.removeprefix("node"))
        for path in sorted(folder.glob("node[0-9]*"))
        for cpu in cpu_list(path / "cpulist")
    }


def memory_nodes(root: Path | None = None) -> list[int]:
    """Return the NUMA nodes that have memory; empty if the machine doesn't say."""
    return cpu_list((root or SYSFS) / "devices/system/node/has_memory")


def _numbers(folder: Path, name: str) -> dict[int, int]:
    """Return the number in file `name` of each CPU that has it."""
    numbers = {}
    for path in folder.glob("cpu[0-9]*"):
        text = _text(path / name)
        if text.isdigit():
            numbers[int(path.name.removeprefix("cpu"))] = int(text)
    return numbers


def cpu_list(path: Path) -> list[int]:
    """Return the numbers of a list such as "0-3,8"; empty without the file."""
    numbers: list[int] = []
    for part in _text(path).split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
