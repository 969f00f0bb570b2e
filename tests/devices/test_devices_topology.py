from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hetsched.config import DeviceConfig
from hetsched.devices.cpu import probe as cpu_probe
from hetsched.devices.cpu import topology
from hetsched.devices.cpu.topology import memory_nodes, one_per_core, read_topology
from hetsched.devices.probe import CorePool

CPU, NODE = "devices/system/cpu", "devices/system/node"
Files = dict[str, str]


def siblings(groups: Mapping[str, list[int]], name: str = "core_cpus_list") -> Files:
    """`groups`: list of a core's threads -> these threads."""
    return {
        f"{CPU}/cpu{cpu}/topology/{name}": text for text, cpus in groups.items() for cpu in cpus
    }


def hybrid_laptop() -> Files:
    """Intel Core i7-1260P: four P cores with two threads, eight E cores."""
    cores = {f"{cpu}-{cpu + 1}": [cpu, cpu + 1] for cpu in range(0, 8, 2)}
    cores |= {str(cpu): [cpu] for cpu in range(8, 16)}
    types = {"devices/cpu_core/cpus": "0-7", "devices/cpu_atom/cpus": "8-15"}
    return siblings(cores) | types | {f"{NODE}/node0/cpulist": "0-15", f"{NODE}/has_memory": "0"}


def two_socket_xeon() -> Files:
    """Two Xeon Gold 6230: 2 x 20 cores, two threads each, numbered socket by socket."""
    cores = {f"{cpu},{cpu + 40}": [cpu, cpu + 40] for cpu in range(40)}
    clocks = {f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": "3900000" for cpu in range(80)}
    nodes = {f"{NODE}/node0/cpulist": "0-19,40-59", f"{NODE}/node1/cpulist": "20-39,60-79"}
    return siblings(cores, "thread_siblings_list") | clocks | nodes | {f"{NODE}/has_memory": "0-1"}


def epyc() -> Files:
    """EPYC 7551P, one thread per core: four nodes, of which two have memory."""
    nodes = {f"{NODE}/node{n}/cpulist": f"{8 * n}-{8 * n + 7}" for n in range(4)}
    cores = siblings({str(cpu): [cpu] for cpu in range(32)})
    return cores | nodes | {f"{NODE}/has_memory": "0,2"}


def big_little() -> Files:
    """Arm: four cores of capacity 446, three of 871, one of 1024; no nodes."""
    capacities = [446] * 4 + [871] * 3 + [1024]
    cores = siblings({str(cpu): [cpu] for cpu in range(8)})
    return cores | {f"{CPU}/cpu{i}/cpu_capacity": str(c) for i, c in enumerate(capacities)}


def written(root: Path, files: Files) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_a_hybrid_laptop_has_twelve_cores_of_two_types(tmp_path: Path) -> None:
    cores = one_per_core(read_topology(range(16), written(tmp_path, hybrid_laptop())))

    assert [core.cpu for core in cores] == [0, 2, 4, 6, *range(8, 16)]
    assert [core.core_type for core in cores] == ["performance"] * 4 + ["efficiency"] * 8
    assert {core.numa_node for core in cores} == {0}


def test_two_sockets_have_their_nodes_and_one_type(tmp_path: Path) -> None:
    root = written(tmp_path, two_socket_xeon())
    cores = one_per_core(read_topology(range(80), root))

    assert [core.cpu for core in cores] == list(range(40))
    assert [core.numa_node for core in cores] == [0] * 20 + [1] * 20
    assert {core.core_type for core in cores} == {""}
    assert memory_nodes(root) == [0, 1]


def test_nodes_without_memory_are_told_from_those_with(tmp_path: Path) -> None:
    root = written(tmp_path, epyc())

    assert [thread.numa_node for thread in read_topology([7, 8, 31], root)] == [0, 1, 3]
    assert memory_nodes(root) == [0, 2]


def test_arm_cores_differ_by_capacity(tmp_path: Path) -> None:
    threads = read_topology([0, 4, 7], written(tmp_path, big_little()))

    types = [thread.core_type for thread in threads]
    assert types == ["capacity 446", "capacity 871", "capacity 1024"]
    assert [thread.numa_node for thread in threads] == [None] * 3


@pytest.mark.parametrize(("slow", "types"), [(4_900_000, {""}), (3_800_000, {"efficiency"})])
def test_clocks_tell_types_apart_unless_they_are_close(
    tmp_path: Path, slow: int, types: set[str]
) -> None:
    clocks = {0: 5_200_000, 1: slow}
    files = {f"{CPU}/cpu{i}/cpufreq/cpuinfo_max_freq": str(c) for i, c in clocks.items()}

    threads = read_topology([1], written(tmp_path, files))

    assert {thread.core_type for thread in threads} == types


def test_a_container_sees_some_threads_and_offline_cores_have_no_files(tmp_path: Path) -> None:
    files = {k: v for k, v in two_socket_xeon().items() if "/cpu3/" not in k}
    threads = read_topology([3, 43, 44, 4], written(tmp_path, files))

    assert [thread.physical_core for thread in threads] == [3, 3, 4, 4]
    assert [core.cpu for core in one_per_core(threads)] == [3, 44]


def test_without_sysfs_each_thread_is_a_core(tmp_path: Path) -> None:
    threads = read_topology([0, 1], tmp_path)

    assert [(thread.physical_core, thread.numa_node) for thread in threads] == [
        (0, None),
        (1, None),
    ]
    assert memory_nodes(tmp_path) == []


@pytest.mark.parametrize(
    ("table", "cores"),
    [
        ({}, [(0, "performance"), (2, "performance"), (8, "efficiency"), (9, "efficiency")]),
        ({"hardware_threads": True, "count": 3},
         [(0, "performance"), (1, "performance"), (2, "performance")]),
    ],
)  # fmt: skip
def test_a_device_is_a_physical_core_with_its_type_or_a_hardware_thread(
    table: dict[str, Any], cores: list[tuple[int, str]], laptop: None
) -> None:
    config = DeviceConfig(kind="cpu", team=False, **table)
    pool = CorePool((0, 1, 2, 3, 8, 9), 6)

    found = cpu_probe.probe([(0, config)], pool).processes

    types = [(core, f"{kind} core") for core, kind in cores]
    infos = [process.device for process in found]
    assert [(i.cores[0], i.identity.rpartition(", ")[2]) for i in infos] == types


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "SYSFS", written(tmp_path, hybrid_laptop()))
