import math

import pytest

from hetsched.device import DeviceInfo
from hetsched.planner.neighbours import co_runners_end, co_runners_of


def core(number: int, node: int | None = None) -> DeviceInfo:
    return DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c", numa_node=node)


GPU = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True)
CORES = [core(number) for number in range(8)]
TEAM = DeviceInfo(
    name="team0", kind="cpu", identity="t", members=tuple(info.name for info in CORES)
)
MACHINE = [GPU, *CORES, TEAM]


def planned(*infos: DeviceInfo) -> dict[str, str]:
    return dict(co_runners_of(infos, MACHINE))


@pytest.mark.parametrize(
    ("cores", "beside"), [(0, "none"), (1, "some"), (5, "some"), (6, "all"), (8, "all")]
)
def test_a_gpu_runs_beside_none_some_or_nearly_all_of_the_cores(cores: int, beside: str) -> None:
    assert planned(GPU, *CORES[:cores])["gpu0"] == beside


def test_a_core_without_the_gpu_runs_beside_some_of_its_neighbours() -> None:
    assert planned(*CORES)["cpu0"] == "some"
    assert planned(GPU, *CORES)["cpu0"] == "all"
    assert planned(CORES[3]) == {"cpu3": "none"}


def test_a_team_counts_as_its_cores_and_is_no_neighbour_of_itself() -> None:
    assert planned(GPU, TEAM) == {"gpu0": "all", "team0": "all"}
    assert planned(TEAM) == {"team0": "none"}


def test_cores_of_another_numa_node_are_no_neighbours() -> None:
    machine = [core(number, node=number // 2) for number in range(4)]

    beside = co_runners_of(machine[:3], machine)

    assert beside == {"cpu0": "all", "cpu1": "all", "cpu2": "none"}


def test_co_runners_are_beside_a_device_until_the_first_of_them_has_finished() -> None:
    ends = [(GPU, 1.0), (CORES[0], 3.0), (CORES[1], 2.0)]
    assert co_runners_end([GPU, *CORES[:2]], ends) == {"gpu0": 2.0, "cpu0": 1.0, "cpu1": 1.0}
    assert co_runners_end([GPU, CORES[0]], ends[:1]) == {"gpu0": math.inf, "cpu0": 1.0}
