from typing import Any

import pytest
from balancer_machines import METHODS
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition import Balancer, Distribution, Phase

KEPT = ("balanced", "communication-bound")
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"load": 0}, "load: 0"),
        ({"load": -1}, "load: -1"),
        ({"load": NAN}, "load: nan"),
        ({"load": 2.5}, "load: 2.5"),
        ({"load": True}, "load: True"),
        ({"load": 2**60}, "load: "),
        ({"devices": 0}, "devices: 0"),
        ({"devices": INF}, "devices: inf"),
        ({"method": "geometrik"}, "did you mean 'geometric'"),
        ({"method": ""}, "choose from: constant, geometric"),
        ({"tolerance": -0.1}, "tolerance: -0.1"),
        ({"tolerance": NAN}, "tolerance: nan"),
        ({"tolerance": INF}, "tolerance: inf"),
        ({"tolerance": "a"}, "tolerance: 'a'"),
        ({"limits": []}, "limits: "),
        ({"limits": [5]}, "limits: "),
        ({"limits": [5, -5]}, "limit: -5"),
        ({"limits": 7}, "limits: 7"),
        ({"models": [Constant(1.0)]}, "models: "),
        ({"models": [1, 2]}, r"models: .*, of device 0, has no .time and .speed"),
        ({"split": 3}, "split: 3"),
        ({"migration_cost": 3}, "migration_cost: 3"),
        ({"pairs": 0}, "pairs: 0"),
        ({"groups": []}, "groups: 0 labels"),
        ({"groups": 3}, "groups: 3"),
        ({"groups": [[0]]}, "device 1 is in none"),
        ({"groups": [[0, 1], []]}, "a group is empty"),
        ({"groups": [[0, 1, 2]]}, "there is no device 2"),
        ({"groups": [["a"]]}, "must be a sequence of device indices"),
    ],
)
def test_what_makes_no_loop_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        Balancer(**{"load": 10, "devices": 2, **arguments})

    assert "\n" not in str(raised.value)


def test_telling_before_asking_is_refused() -> None:
    balancer = Balancer(10, 2)
    with pytest.raises(UsageError, match="call ask"):
        balancer.tell([1.0, 1.0])
    balancer.ask()
    balancer.tell([1.0, 1.0])

    with pytest.raises(UsageError, match="call ask"):
        balancer.tell([1.0, 1.0])


@pytest.mark.parametrize("method", ["geometric", "imbalance-factor"])
@pytest.mark.parametrize(
    "times",
    [
        [],
        [1.0],
        [0.0, 1.0],
        [object(), 1.0],
        [-1.0, 1.0],
        [NAN, 1.0],
        [INF, 1.0],
        ["1", 1.0],
        "11",
        7,
        {0: 1.0, 1: 1.0},
        [{Phase.COMPUTE: -1.0}, 1.0],
        [{Phase.COMPUTE: 0.0, Phase.WAIT: 1.0}, 1.0],
        [{Phase.COMPUTE: 1.0, Phase.WAIT: -1.0}, 1.0],
        [{Phase.COMPUTE: 1.0, Phase.WAIT: NAN}, 1.0],
        [{"compute": 1.0}, 1.0],
        [{}, 1.0],
    ],
)
def test_times_that_cannot_be_are_refused_and_nothing_is_learnt(method: str, times: Any) -> None:
    balancer = Balancer(10, 2, method)
    arguments = balancer.ask()

    with pytest.raises(UsageError, match="tell"):
        balancer.tell(times)

    assert balancer.iterations == 0
    balancer.tell([1.0, 1.0])
    assert balancer.ask().shares == arguments.shares


def test_a_wait_may_be_a_rounding_error_below_nothing() -> None:
    balancer = Balancer(10, 2)
    balancer.ask()

    balancer.tell([{Phase.COMPUTE: 1.0, Phase.WAIT: -1e-16}, 1.0])

    assert balancer.balanced


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must be a Distribution"),
        (Distribution((5, 4), 1.0, 0.0), "must sum to 10 units"),
        (Distribution((10,), 1.0, 0.0), "must sum to 10 units"),
        (Distribution((11, -1), 1.0, 0.0), "the device takes 0 to 4"),
    ],
)
def test_a_split_that_is_none_is_refused(returned: Any, message: str) -> None:
    balancer = Balancer(10, 2, limits=[4, None], split=lambda models, load, limits: returned)
    balancer.ask()
    balancer.tell([8.0, 1.0])

    with pytest.raises(UsageError, match=message):
        balancer.ask()


@pytest.mark.parametrize("cost", [-1.0, NAN, INF, None, "1"])
def test_a_cost_that_is_none_is_refused(cost: Any) -> None:
    balancer = Balancer(10, 2, migration_cost=lambda old, new: cost)
    balancer.ask()
    balancer.tell([1.0, 8.0])

    with pytest.raises(UsageError, match="migration_cost"):
        balancer.ask()


seconds = st.floats(1e-3, 1e3)
machines = st.lists(st.tuples(seconds, seconds, st.floats(0.5, 2)), min_size=1, max_size=5)


@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    """What a user may rely on, whatever the method."""

    @given(machines, st.integers(1, 400), st.data())
    def test_every_split_is_whole_and_within_the_limits_and_the_loop_ends(
        self,
        method: str,
        devices: list[tuple[float, float, float]],
        load: int,
        data: st.DataObject,
    ) -> None:
        drawn = [data.draw(st.none() | st.integers(0, load)) for _ in devices]
        limits = [load if limit is None else limit for limit in drawn]
        limits[0] += max(0, load - sum(limits))
        balancer = Balancer(load, len(devices), method, limits=limits)
        best = INF

        for _ in range(60 + 20 * len(devices)):
            shares = balancer.ask().shares
            assert sum(shares) == load
            assert all(0 <= x <= limit for x, limit in zip(shares, limits, strict=True))
            times = [
                gap + x**power / speed
                for x, (gap, speed, power) in zip(shares, devices, strict=True)
            ]
            best = min(best, max(t for t, x in zip(times, shares, strict=True) if x))
            balancer.tell(times)
            if balancer.reason:
                break

        assert balancer.reason
        final = balancer.ask()
        assert final.makespan <= best * (1 + 1e-9) or balancer.reason in KEPT

    @given(machines, st.integers(1, 400), st.lists(st.integers(0, 9), max_size=12))
    def test_devices_may_come_and_go(
        self, method: str, devices: list[tuple[float, float, float]], load: int, events: list[int]
    ) -> None:
        balancer = Balancer(load, len(devices), method)
        lost: set[int] = set()
        count = len(devices)
        for event in events:
            shares = balancer.ask().shares
            assert len(shares) == count
            assert sum(shares) == load
            assert all(shares[i] == 0 for i in lost)
            if event < 2 and count - len(lost) > 1:
                lost.add(min(set(range(count)) - lost))
            balancer.tell([None if i in lost else 1.0 + x for i, x in enumerate(shares)])
            if event > 7:
                assert balancer.join() == count
                count += 1
