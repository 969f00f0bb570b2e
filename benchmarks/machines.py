"""Random machines of emulated devices, slow enough for any real machine to emulate."""

from __future__ import annotations

import random

CORES = (1, 3)
CORE_RATE = (0.3, 0.8)
GPU_RATE = (0.8, 2.5)
"""Gflop/s: a 512x512 plane takes at least 10 ms; a real core needs 1 to 4 ms."""
LINK_RATE = (0.3, 2.0)
"""GB/s"""
GAP = (10, 100)
"""Fixed cost of a kernel call or a copy, microseconds."""
MEMORY = (24, 128)
"""In units of half a 512x512 plane of complex64, which is 1 MiB."""
DUPLEX = (0.6, 1.0)


def draw(seed: int, clock: str, unit_bytes: int = 2 << 20) -> str:
    """Draw a configuration: 1 to 3 cores and a GPU behind a link, or 2 to 4 cores.

    Parameters
    ----------
    seed : int
        Seed of all random values.
    clock : "real" or "virtual"
    unit_bytes : int
        Bytes of one unit's input, of which the GPU's memory is a multiple.
    """
    chance = random.Random(seed)
    gpu = chance.random() < 0.75
    cores = chance.randint(*CORES) + (not gpu)
    same = chance.random() < 0.5
    rate = chance.uniform(*CORE_RATE)
    tables = []
    for number in range(cores):
        own = rate if same else chance.uniform(*CORE_RATE)
        tables.append(device(f"core{number}", clock, 0, _cost(chance, own, "Gflop/s", "compute")))
    if gpu:
        lines = [
            f'memory = "{chance.randint(*MEMORY) * unit_bytes // 2}B"',
            f"engines = {chance.choice((1, 2))}",
            f"duplex = [{chance.uniform(*DUPLEX):.2f}, {chance.uniform(*DUPLEX):.2f}]",
            _cost(chance, chance.uniform(*GPU_RATE), "Gflop/s", "compute"),
            _cost(chance, chance.uniform(*LINK_RATE), "GB/s", "h2d"),
            _cost(chance, chance.uniform(*LINK_RATE), "GB/s", "d2h"),
        ]
        tables.append(device("emu0", clock, 1, *lines))
    return "\n".join(tables)


def device(name: str, clock: str, core: int, *lines: str) -> str:
    head = ["[[device]]", 'kind = "emulated"', f'name = "{name}"', f'clock = "{clock}"']
    return "\n".join([*head, f"core = {core}", *lines, ""])


def _cost(chance: random.Random, rate: float, unit: str, phase: str) -> str:
    return f'{phase} = {{ gap = "{chance.randint(*GAP)}us", rate = "{rate:.3f}{unit}" }}'
