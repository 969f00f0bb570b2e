"""Machines that are functions, run under a Balancer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetsched.partition import Balancer, Phase

Times = Sequence[Callable[[int], float]]
"""Seconds of so many units, for each device."""

METHODS = ("constant", "geometric", "smooth", "optimal", "dfpa", "imbalance-factor")


def at_speeds(*speeds: float) -> Times:
    return [lambda units, speed=speed: units / speed for speed in speeds]  # type: ignore[misc]


def play(balancer: Balancer, times: Times, max_runs: int = 100) -> list[tuple[int, ...]]:
    """The splits until the loop ends."""
    splits = []
    for _ in range(max_runs):
        splits.append(run(balancer, times))
        if balancer.reason:
            break
    return splits


def makespan(times: Times, shares: Sequence[int]) -> float:
    """Seconds of a run with `shares`."""
    return max(time(share) for time, share in zip(times, shares, strict=True))


def run(balancer: Balancer, times: Times) -> tuple[int, ...]:
    """One run; the split that it was of."""
    shares = balancer.ask().shares
    balancer.tell([time(share) for time, share in zip(times, shares, strict=True)])
    return shares


def run_phases(balancer: Balancer, compute: Times, transfer: Times) -> float:
    """One iteration up to a barrier; its seconds."""
    shares = balancer.ask().shares
    computing = [time(share) for time, share in zip(compute, shares, strict=True)]
    moving = [time(share) for time, share in zip(transfer, shares, strict=True)]
    end = max(a + b for a, b in zip(computing, moving, strict=True))
    balancer.tell(
        [
            {Phase.COMPUTE: a, Phase.TRANSFER: b, Phase.WAIT: end - a - b, Phase.CONVERGE: 0.0}
            for a, b in zip(computing, moving, strict=True)
        ]
    )
    return end


def clarke(load: int, reserve: int = 44, slower: float = 75.0, within: float = 0.05) -> Times:
    """Cluster 2 of Clarke, section 3.2: rows of a matrix, and paging beyond the memory."""
    machines = ((256, 3.6), (256, 3.0), (512, 3.4), (1024, 3.4))

    def machine(ram: int, ghz: float) -> Callable[[int], float]:
        capacity = (ram - reserve) * 2**20 / (8 * load)
        full = ghz * 5000 * 11000 / load

        def seconds(rows: int) -> float:
            beyond = min(max(rows / capacity - 1, 0.0) / within, 1.0)
            return rows / (full * (1 - beyond) + full / slower * beyond)

        return seconds

    return [machine(ram, ghz) for ram, ghz in machines]
