"""Chooses the core that drives a GPU.

Its thread is pinned there, so that the planner knows which core computes less meanwhile
(`hetsched.planner.host_overhead`); the core isn't reserved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

_PCI_DEVICES = Path("/sys/bus/pci/devices")


def driving_core(
    free: Sequence[int], local: Collection[int], taken: Collection[int]
) -> tuple[int, ...]:
    """Return the core of `free` that should drive a GPU; () if there is none. Pure.

    The last one that is near the GPU and drives no other, since a configuration with fewer cores
    than the machine leaves the last ones idle, and interrupts prefer the first.

    Parameters
    ----------
    free : sequence of int
        Cores that aren't reserved.
    local : collection of int
        Cores near the GPU; empty: unknown.
    taken : collection of int
        Cores that drive other GPUs.
    """
    near = [core for core in free if core in local] or list(free)
    unused = [core for core in near if core not in taken] or near
    return tuple(unused[-1:])


def local_cores(pci: str, devices: Path = _PCI_DEVICES) -> frozenset[int]:
    """Return the cores near the device at PCI address `pci`, as NVML writes it; empty: unknown."""
    domain, _, rest = pci.lower().partition(":")
    try:
        address = f"{int(domain, 16):04x}:{rest}"  # NVML's domain has eight digits
        text = (devices / address / "local_cpulist").read_text(encoding="ascii")
        return frozenset(_parse_list(text))
    except (OSError, ValueError):
        return frozenset()


def _parse_list(text: str) -> list[int]:
    """Return the numbers of a list such as "0-3,8". Raises ValueError."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
