from __future__ import annotations

import random
from typing import Any

import pytest

from hetsched.config import load_profile, parse
from hetsched.errors import ConfigError, DataError
from hetsched.simulate.machine import SimulatedMachine, device_seconds, ideal_plan, learn, makespan
from hetsched.simulate.profile import machine_of

NOISE = 0.02


def profile(name: str) -> SimulatedMachine:
    return machine_of(*load_profile(name))


def machine(
    *tables: str, load: str = "units = 8\ninput_bytes = 8\noutput_bytes = 8"
) -> SimulatedMachine:
    text = f"[load]\n{load}\n" + "".join(f"[[device]]\n{table}\n" for table in tables)
    return machine_of(parse(text, "m.toml"), "m.toml")


CORE = 'kind = "cpu"\ncompute = { unit = "2ms" }'
GPU = """kind = "gpu"
memory = "64B"
compute = { gap = "1ms", unit = "1ms" }
h2d = { unit = "1ms" }
d2h = { rate = "16kB/s" }"""


@pytest.mark.parametrize(("name", "max_seconds"), [("desktop", 40.0e-3), ("h100", 9.45e-3)])
def test_the_plans_of_both_profiles_are_as_fast_as_any_known(
    name: str, max_seconds: float
) -> None:
    subject = profile(name)
    seconds = makespan(subject.play(ideal_plan(subject)))
    assert seconds <= max_seconds
    bound = subject.bound()
    assert bound <= seconds <= 1.001 * bound


@pytest.mark.parametrize("name", ["desktop", "h100"])
def test_what_is_planned_is_what_is_played(name: str) -> None:
    subject = profile(name)
    plan = ideal_plan(subject)
    played = subject.play(plan)
    for assignment in plan.assignments:
        assert assignment.predicted_seconds == pytest.approx(
            device_seconds(played[assignment.device])
        )
        assert sum(units for units, _ in played[assignment.device]) == assignment.plan.share


@pytest.mark.parametrize("name", ["desktop", "h100"])
def test_from_nothing_the_fourth_plan_is_near_the_best(name: str) -> None:
    runs = learn(profile(name), 4, NOISE, 1)
    assert runs[0].plan.predicted_seconds is None
    assert runs[3].noiseless <= 1.02 * makespan(profile(name).play(ideal_plan(profile(name))))


def test_noise_errs_a_little_and_the_same_again_with_the_same_seed() -> None:
    subject = profile("h100")
    plan = ideal_plan(subject)
    exact = makespan(subject.play(plan))
    first, again, other = (
        makespan(subject.play(plan, 0.02, random.Random(seed))) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first == pytest.approx(exact, rel=0.05)


def test_a_profile_gives_the_costs_of_each_device() -> None:
    subject = machine(f"{CORE}\ncount = 2", GPU, CORE, f'{CORE}\nname = "big"')
    names = [device.name for device in subject.devices]
    assert names == ["cpu0", "cpu1", "gpu0", "cpu2", "big"]
    gpu: Any = subject.devices[2]
    costs = [curve.time(2) for curve in (gpu.model.h2d, gpu.model.compute, gpu.model.d2h)]
    assert costs == pytest.approx([2e-3, 3e-3, 1e-3])
    assert (gpu.demand.limit, gpu.demand.need([3])) == (64, 48)
    assert subject.devices[0].model.time(3) == pytest.approx(6e-3)


def test_a_profile_with_tables_of_costs_is_planned_around_their_steps() -> None:
    points = '[[1, "100us"], [16, "1.6ms"], [17, "3.4ms"], [128, "25.6ms"]]'
    tabled = GPU.replace('{ gap = "1ms", unit = "1ms" }', f"{{ points = {points} }}")
    tabled = tabled.replace("1ms", "10us").replace("16kB/s", "800kB/s").replace("64B", "1MiB")

    subject = machine(tabled, load="units = 128\ninput_bytes = 8\noutput_bytes = 8")

    (assignment,) = ideal_plan(subject).assignments
    assert assignment.max_chunk <= 16
    curve = subject.devices[0].model.compute
    assert [curve.time(x) for x in (8, 17, 256)] == pytest.approx([8e-4, 3.4e-3, 51.2e-3])


def test_a_device_that_holds_no_unit_is_left_out_of_plan_and_bound() -> None:
    subject = machine(CORE, GPU.replace("64B", "8B"))
    plan = ideal_plan(subject)
    assert [assignment.device for assignment in plan.assignments] == ["cpu0"]
    assert subject.bound() == pytest.approx(16e-3)
    with pytest.raises(DataError, match="no device can hold one unit"):
        ideal_plan(machine(GPU.replace("64B", "8B")))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (['kind = "cpu"'], r"device\[0\]: a modelled device needs compute = "),
        ([CORE, GPU.replace('d2h = { rate = "16kB/s" }', "")], r"device\[1\]: give both h2d and"),
        ([GPU.replace('memory = "64B"', "")], r"device\[0\]: a device with a link needs memory"),
        ([f'{CORE}\nmemory = "1GiB"'], r"device\[0\]: a cpu has no link"),
        ([CORE.replace("cpu", "gpu")], r"device\[0\]: a gpu has a link: give h2d and d2h"),
        ([CORE.replace('unit = "2ms"', 'rate = "1Gflop/s"')], "a rate needs flops"),
        ([CORE.replace("2ms", "0ms")], "a unit takes no time"),
        ([CORE.replace('unit = "2ms"', "")], "give either rate or unit, or a table"),
        ([GPU.replace("16kB/s", "16kflop/s")], r"d2h.rate: '16kflop/s', must be in B/s"),
        ([f'{CORE}\nname = "a"'] * 2, "two have the name a"),
        ([], r"no \[\[device\]\]"),
    ],
)
def test_an_inconsistent_profile_is_one_clear_line(tables: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        machine(*tables)
    assert str(raised.value).startswith("m.toml: ")
    assert "\n" not in str(raised.value)


def test_a_profile_without_a_load_or_with_a_huge_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no \[load\]; a machine profile needs its units"):
        machine_of(parse("[[device]]\nkind = 'cpu'", "m.toml"), "m.toml")
    with pytest.raises(ConfigError, match=r"device\[0\].compute: .* profile, with a \[load\]"):
        parse(f"[[device]]\n{CORE}", "m.toml")
    with pytest.raises(ConfigError, match=r"load.units: 2000000000, at most 1000000000"):
        machine(CORE, load="units = 2000000000\ninput_bytes = 1\noutput_bytes = 1")
