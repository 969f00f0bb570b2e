"""Clarke's and NEC's experiments through a daemon: emulated devices, virtual clocks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from served import Daemon, serving

from hetsched.simulate.curves import Paging
from hetsched.simulate.papers import clarke, nec
from hetsched.simulate.runs import Shares

DIFFUSION = "diffusing_workload:Diffusion"
SETTING = clarke.ClarkeSetting(11000)
_, K_MEANS, _ = nec.CASES
ITERATIONS = 14
MAX_DIFFERENCE = 2
"""Rows: times go through text and sums, so a half may be rounded the other way."""


def table(machine: Paging) -> list[list[float | str]]:
    """Return the cost of every size up to the end of the cliff, and beyond it in proportion."""
    first = max(1, math.floor(machine.capacity))
    last = math.ceil(machine.capacity * (1 + machine.width)) + 1
    return [[units, f"{machine.time(units)!r}s"] for units in range(first, last + 1)]


def config() -> str:
    devices = [
        f'[[device]]\nkind = "emulated"\nname = "p{number}"\nclock = "virtual"\n'
        f"compute = {{ points = {table(machine)} }}\n"
        for number, machine in enumerate(SETTING.machines(), 1)
    ]
    devices += [
        f'[[device]]\nkind = "emulated"\nname = "node{number}"\nclock = "virtual"\n'
        f'compute = {{ gap = "{node.transfer!r}s", unit = "{node.pace!r}s" }}\n'
        for number, node in enumerate(K_MEANS.nodes, 1)
    ]
    return "\n".join(devices).replace("'", '"')


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving(config()) as daemon:
        yield daemon


def splits(daemon: Daemon, rows: int, balance: str, devices: list[str]) -> list[Shares]:
    """Return the rows of each device in each iteration."""
    with daemon.client() as client:
        options = {"balance": balance, "devices": devices}
        job = client.submit(DIFFUSION, rows=rows, columns=1, iterations=ITERATIONS, **options)
        job.result(120)
        history = job.explain().iterations
    assert history is not None
    slots = [history.devices.index(device) for device in devices]
    return [tuple(span.rows[slot] for slot in slots) for span in history.spans]


def farthest(found: list[Shares], simulated: list[Shares]) -> int:
    """Return the largest difference of two shares, rows."""
    return max(
        abs(a - b)
        for one, other in zip(found, simulated, strict=False)
        for a, b in zip(one, other, strict=True)
    )


def test_functional_models_balance_as_soon_as_in_the_simulation(daemon: Daemon) -> None:
    machines = SETTING.machines()
    simulated = clarke.balance(SETTING, "geometric")

    found = splits(daemon, 11000, "functional", ["p1", "p2", "p3", "p4"])

    limit = clarke.MAX_NEAR_RATIO * simulated.optimum.makespan
    near = [max(m.time(x) for m, x in zip(machines, s, strict=True)) <= limit for s in found]
    assert near.index(True) + 1 == simulated.first_within(clarke.MAX_NEAR_RATIO)
    assert farthest(found, [run.shares for run in simulated.runs]) <= MAX_DIFFERENCE
    assert near[-1]


def test_nodes_of_the_patent_trade_as_in_the_simulation(daemon: Daemon) -> None:
    simulated = nec.balance(K_MEANS, nec.ONE_PAIR)

    found = splits(daemon, 120_000, "imbalance-factor", ["node1", "node2", "node3"])

    in_order = [tuple(sorted(shares)) for shares in found]  # of the two equal nodes either trades
    expected = [tuple(sorted(run.shares)) for run in simulated.runs]
    assert farthest(in_order, expected) <= MAX_DIFFERENCE
    assert set(found[len(simulated.runs) :]) == {found[-1]}
