from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec
import pytest

from hetsched.config import Config, Cost, DeviceConfig
from hetsched.devices import probe
from hetsched.devices.cpu import topology
from hetsched.devices.cuda import probe as cuda_probe
from hetsched.devices.cuda.nvml import Gpu, Snapshot
from hetsched.devices.cuda.probe import driving_core, local_cores
from hetsched.devices.probe import Probe
from hetsched.errors import ConfigError, Unavailable
from hetsched.machine_limits import ControlGroups, processor

EMULATED = DeviceConfig(
    kind="emulated",
    memory="1MiB",
    compute=Cost(rate="6Gflop/s"),
    h2d=Cost(rate="1GB/s"),
    d2h=Cost(rate="1GB/s"),
)
CPU = DeviceConfig(kind="cpu", team=False)
TEAM = DeviceConfig(kind="cpu")


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four cores of one thread each, whatever this machine has."""
    monkeypatch.setattr(topology, "SYSFS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 6, 7})
    allow(monkeypatch, math.inf)
    monkeypatch.setattr(cuda_probe, "snapshot", lambda: Snapshot(problem="no driver"))


def allow(monkeypatch: pytest.MonkeyPatch, quota: float) -> None:
    """Have so many cores busy at once."""
    monkeypatch.setattr(ControlGroups, "cores", lambda _: quota)


def probed(*devices: DeviceConfig) -> Probe:
    return probe.probe(Config(device=devices))


def names(result: Probe) -> list[str]:
    return [process.device.name for process in result.processes]


def pinned(result: Probe) -> list[tuple[int, ...]]:
    return [process.device.cores for process in result.processes]


ON_CORE_1 = msgspec.structs.replace(EMULATED, core=1)
CORES = {"cpu0": (2,), "cpu1": (3,), "cpu2": (6,), "cpu3": (7,)}


@pytest.mark.parametrize(
    ("quota", "tables", "devices"),
    [
        (math.inf, [CPU], CORES),
        (math.inf, [CPU, ON_CORE_1], {"cpu0": (2,), "cpu1": (6,), "cpu2": (7,), "emu0": (3,)}),
        (math.inf, [msgspec.structs.replace(TEAM, count=1)], {"cpu0": (2,)}),
        (math.inf, [msgspec.structs.replace(TEAM, name="team", count=2)],
         {"team0": (2,), "team1": (3,), "team2": (2, 3)}),
        (2.0, [TEAM], {"cpu0": (), "cpu1": (), "team0": ()}),
        (1.5, [CPU], {"cpu0": (), "cpu1": ()}),
    ],
    ids=["all", "emulated-reserves", "one-is-no-team", "names-differ", "quota", "part-of-a-core"],
)  # fmt: skip
def test_each_core_has_a_process_unless_it_is_reserved(
    quota: float,
    tables: list[DeviceConfig],
    devices: dict[str, tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(monkeypatch, quota)

    result = probed(*tables)

    assert dict(zip(names(result), pinned(result), strict=True)) == devices


def test_several_cores_are_also_a_team_in_a_process_of_its_own() -> None:
    result = probed(TEAM, msgspec.structs.replace(EMULATED, core=1))

    assert names(result) == ["cpu0", "cpu1", "cpu2", "team0", "emu0"]
    team = result.processes[3].device
    assert (team.members, team.cores, team.threads) == (("cpu0", "cpu1", "cpu2"), (2, 6, 7), 3)
    assert team.identity == f"{processor()} x3 threads"
    assert result.processes[3].lazy
    assert set(result.processes[3].env.values()) == {"3"}


def test_copies_have_names_cores_seeds_and_processes_of_their_own() -> None:
    result = probed(msgspec.structs.replace(EMULATED, count=2, core=2, seed=5))

    assert names(result) == ["emu0", "emu1"]
    assert pinned(result) == [(6,), (7,)]
    assert [process.config.seed for process in result.processes] == [5, 6]


@pytest.mark.parametrize(
    ("tables", "kind", "message"),
    [
        ([msgspec.structs.replace(EMULATED, core=4)], ConfigError,
         r"device\[0\].core: no core 4; available here: 0 to 3"),
        ([msgspec.structs.replace(CPU, count=5)], ConfigError, "5 cores requested, 4 available"),
        ([msgspec.structs.replace(EMULATED, name="a")] * 2, ConfigError, "'a'"),
        ([CPU, DeviceConfig(kind="gpu")], Unavailable, "gpu0: no driver"),
    ],
)  # fmt: skip
def test_what_this_machine_lacks_is_an_error(
    tables: list[DeviceConfig], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        probed(*tables)


def test_cores_that_are_all_taken_are_noted() -> None:
    result = probed(CPU, msgspec.structs.replace(EMULATED, count=4, core=0))

    assert "cpu" in result.absent
    assert len(result.processes) == 4


def test_another_emulation_is_another_identity() -> None:
    faster = msgspec.structs.replace(EMULATED, compute=Cost(rate="7Gflop/s"))

    first, second, third = (probed(c).processes[0].device for c in (EMULATED, EMULATED, faster))

    assert first.identity == second.identity != third.identity


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor : 0\nmodel name : Fast CPU 9000\n")
    (tmp_path / "arm").write_text("CPU implementer : 0x41\nCPU part : 0xd0c\n")

    assert processor(tmp_path / "x86") == "Fast CPU 9000"
    assert "0x41 0xd0c" in processor(tmp_path / "arm")


def test_each_gpu_is_driven_by_a_core_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    near = {"0000:00": {2, 3}, "0000:01": {2, 3}, "0000:02": set()}
    monkeypatch.setattr(cuda_probe, "local_cores", near.__getitem__)
    machine = Snapshot(tuple(Gpu(n, "T4", f"GPU-{n}", pci) for n, pci in enumerate(near)))

    result = cuda_probe.select_gpus(
        [(0, DeviceConfig(kind="gpu"))], machine, None, True, (2, 3, 6, 7)
    )

    assert pinned(result) == [(3,), (2,), (7,)]


def test_the_cores_near_a_gpu_come_from_sysfs(tmp_path: Path) -> None:
    (tmp_path / "0000:c1:00.0").mkdir()
    (tmp_path / "0000:c1:00.0/local_cpulist").write_text("0-2,8\n")

    assert local_cores("00000000:C1:00.0", tmp_path) == {0, 1, 2, 8}
    assert local_cores("00000000:C2:00.0", tmp_path) == frozenset()
    assert local_cores("", tmp_path) == frozenset()


def test_a_gpu_without_a_core_to_itself_shares_one() -> None:
    assert driving_core((2, 3), {2, 3}, [2, 3]) == (3,)
    assert driving_core((), {2}, ()) == ()
