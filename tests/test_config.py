"""Configurations: found by name or path, checked, and wrong ones said clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.config import Cost, load, parse, shipped
from hetsched.errors import ConfigError, InputMissing

EMULATED = """
[[device]]
kind = "emulated"
memory = "64MiB"
compute = { gap = "30us", rate = "6Gflop/s" }
h2d = { rate = "1GB/s" }
d2h = { rate = "1GB/s" }
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HETSCHED_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_configuration_loads(name: str) -> None:
    config, source = load(name)

    assert config.device
    assert source.endswith(f"{name}.toml")


def test_without_a_name_the_default_counts() -> None:
    config, source = load()

    assert source.endswith("default.toml")
    assert [device.kind for device in config.device] == ["cpu", "gpu"]


def test_the_file_of_the_user_comes_before_the_default(tmp_path: Path) -> None:
    (tmp_path / "hetsched").mkdir()
    (tmp_path / "hetsched/config.toml").write_text("memory_limit = '1GiB'\n")

    assert load()[0].memory_limit == 1 << 30


def test_the_environment_comes_before_the_file_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HETSCHED_CONFIG", "cpu-only")

    assert [device.kind for device in load()[0].device] == ["cpu"]
    assert len(load("emulated-gpu")[0].device) == 3


def test_costs_are_a_gap_and_a_rate_or_a_time_a_unit() -> None:
    assert Cost(gap="10us", rate="1GB/s").seconds(3, 1e6, 0) == pytest.approx(3.01e-3)
    assert Cost(gap="1ms", unit="4ms").seconds(3, 0, 0) == pytest.approx(13e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", ["not valid TOML"]),
        ("colour = 1", ["unknown key 'colour'; choose from: device, memory_limit, stealing"]),
        ("steeling = true", ["my.toml: unknown key 'steeling'; did you mean 'stealing'?"]),
        ("stealing = 'x'", ["my.toml: stealing: expected true or false, got 'x'"]),
        ("queue = 3", ["my.toml: queue: expected a table, got 3"]),
        ("[device]\nkind = 'cpu'", ["my.toml: device: ", "write [[device]] instead of [device]"]),
        ("[queue]\nlimit = 0", ["my.toml: queue.limit: expected an integer >= 1, got 0"]),
        ("[load]\nunits = 1", ["my.toml: load: missing key input_bytes"]),
        ("[arena]\nlimt = '3'", ["my.toml: arena: unknown key 'limt'; did you mean 'limit'?"]),
        ('"a`\\nb" = 1', ["unknown key"]),
        (
            "[[device]]\nkind = 'cpu'\ncuont = 2",
            ["device[0].cuont: not a key of kind 'cpu'; did you mean 'count'?"],
        ),
        ("[[device]]\nkind = 'emulated'\nh2d = { rat = '1' }", ["device[0].h2d:", "mean 'rate'?"]),
        ("[[device]]\nkind = 'tpu'", ["tpu", "device[0]"]),
        ("[[device]]\nkind = 'cpu'\ncount = 0", ["count"]),
        ("[[device]]\nkind = 'cpu'\ncount = 'two'", ["count"]),
        ("[[device]]\nkind = 'gpu'\nmemory = 'much'", ["device[0].memory", "64MiB"]),
        (
            "[[device]]\nkind = 'cpu'\ncore = 2",
            ["device[0].core: not a key of kind", "a machine profile"],
        ),
        ("[[device]]\nkind = 'cpu'\nmemory = '1GiB'", ["device[0].memory: not a key"]),
        (
            "[[device]]\nkind = 'cpu'\ncores = 2",
            ["device[0].cores: not a key of kind", "count says how many"],
        ),
        (
            "[[device]]\nkind = 'emulated'\ncores = 2",
            ["device[0].cores: not a key of kind 'emulated'; did you mean 'core'?"],
        ),
        ("[[device]]\nkind = 'cpu'\non_cpu = false", ["device[0].on_cpu: not a key of kind"]),
        ("[arena]\nwarm_for = 3", ["arena.warm_for: 3 should be a string such as '30s'"]),
        ("[[device]]\nkind = 'gpu'\nteam = false", ["device[0].team: not a key of kind 'gpu'"]),
        ("[[device]]\nkind = 'emulated'", ["compute"]),
        (EMULATED.replace("6Gflop/s", "6GB/s"), ["compute.rate", "flop/s"]),
        (EMULATED.replace("1GB/s", "1Gflop/s"), ["h2d.rate", "B/s"]),
        (EMULATED.replace("30us", "soon"), ["compute.gap", "soon"]),
        (EMULATED.replace('memory = "64MiB"', ""), ["memory"]),
        (EMULATED.replace('d2h = { rate = "1GB/s" }', ""), ["both h2d and d2h"]),
        (EMULATED.replace(', rate = "6Gflop/s"', ""), ["either rate or unit"]),
        (EMULATED + "duplex = [0.9, 0.0]", ["duplex"]),
        (EMULATED + "engines = 3", ["device[0].engines: unknown value 3; choose from: 0, 1, 2"]),
        ("memory_limit = 'much'", ["memory_limit"]),
        ("[arena]\nlimit = 'much'", ["arena.limit: 'much' is not a size", "or 70%"]),
        ("[arena]\nresults = '101%'", ["arena.results: '101%' should be"]),
        ("[arena]\nresults_for = 'many'", ["arena.results_for: 'many'"]),
        ("[arena]\nwarm_for = 'many'", ["arena.warm_for: 'many'"]),
        ("[deadlines]\nstart = 'soon'", ["deadlines.start: 'soon' is not a time"]),
        ("[deadlines]\nstop = '0s'", ["deadlines.stop: '0s' should be above 0"]),
        ("[deadlines]\nchunk_factor = 0.5", ["deadlines.chunk_factor: expected a number >= 1"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "my.toml")

    message = str(caught.value)
    assert "\n" not in message
    for word in ["my.toml", *words]:
        assert word in message


@pytest.mark.parametrize("name", ["nope", "nope.toml", "./nope", "/proc/none/x.toml"])
def test_a_configuration_that_is_not_there(name: str) -> None:
    with pytest.raises(InputMissing, match=r"nope|none"):
        load(name)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="UTF-8"):
        load(str(tmp_path / "x.toml"))


TABLE = '{ points = [[1, "100us"], [16, "1.6ms"], [17, "3.2ms"], [32, "3.2ms"]] }'


def test_a_table_of_costs_is_linear_between_its_points_and_proportional_outside() -> None:
    cost = parse(EMULATED.replace('{ gap = "30us", rate = "6Gflop/s" }', TABLE), "t").device[0]

    assert cost.compute is not None
    seconds = [cost.compute.seconds(units, 0, 0) for units in (1, 8, 16, 17, 24, 64)]
    assert seconds == pytest.approx([1e-4, 8e-4, 1.6e-3, 3.2e-3, 3.2e-3, 6.4e-3])


@pytest.mark.parametrize("phase", ["compute", "h2d", "d2h"])
@pytest.mark.parametrize(
    ("points", "words"),
    [
        ("[]", ".points: empty; give points like"),
        ('[[2, "1ms"], [1, "2ms"]]', ".points: 1 units after 2; sort them"),
        ('[[2, "1ms"], [2, "2ms"]]', ".points: 2 units after 2; sort them"),
        ('[[-1, "1ms"]]', ".points[0]: -1 units, must be above 0"),
        ('[[1, "0ms"]]', ".points[0]: '0ms', must be above 0"),
        ('[[1, "-1ms"]]', ".points[0]:"),
        ('[[1, "1ms"], [2, "1MB"]]', ".points[1]:"),
        ("[[1, 1]]", "points"),
        ('[["1ms", 1]]', "points"),
        ('[[1, "1ms", 2]]', "points"),
        ('[[1, "1ms"]], gap = "1us"', ".points: a table replaces gap, rate and unit"),
        ('[[1, "1ms"]], unit = "1us"', ".points: a table replaces gap, rate and unit"),
    ],
)
def test_a_wrong_table_of_costs_is_one_clear_line(phase: str, points: str, words: str) -> None:
    costs = {"compute": '{ unit = "1us" }', "h2d": '{ unit = "1us" }', "d2h": '{ unit = "1us" }'}
    costs[phase] = f"{{ points = {points} }}"
    lines = "\n".join(f"{name} = {cost}" for name, cost in costs.items())

    with pytest.raises(ConfigError) as caught:
        parse(f'[[device]]\nkind = "emulated"\nmemory = "1MiB"\n{lines}', "my.toml")

    message = str(caught.value)
    assert f"my.toml: device[0].{phase}" in message and words in message
    assert "\n" not in message
