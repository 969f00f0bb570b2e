"""Flags that follow from a workload's parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from hetsched.cli import flags
from hetsched.cli.workloads import check_without_files, job_spec, params_flags
from hetsched.errors import UsageError
from hetsched.job import Dependency, JobSpec

from .conftest import Call


class Params(msgspec.Struct, frozen=True):
    batch: Annotated[str, msgspec.Meta(description="how many")]
    mode: Literal["fast", "exact"] = "fast"
    in_place: bool = False
    rounds: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Toy:
    """What `flags_of` needs of a workload."""

    name = "toy"
    inputs = input_names = ("x",)
    Params = Params
    asked: Any = None

    def infer(self, given: Any, arrays: Any) -> Any:
        self.asked = (given, arrays)
        return given

    def load(self, p: Any) -> int:
        return 1


def spec(**options: Any) -> JobSpec:
    return job_spec("toy", {"batch": "3"}, options)


def test_every_field_becomes_a_flag() -> None:
    found = params_flags(Toy())  # type: ignore[arg-type]
    assert [(flag.name, flag.metavar, flag.help, flag.other) for flag in found] == [
        ("batch", "BATCH", "how many", ""),
        ("mode", "exact|fast", "[default: fast]", ""),
        ("in_place", "", "[default: False]", "--no-in-place"),
        ("rounds", "ROUNDS", "", ""),
    ]


def test_what_follows_from_the_inputs_has_no_flag(call: Call) -> None:
    ended = call("run", "pcg", "--grid", "4x4", "--nonzeros", "3")
    assert (ended.code, "no such option" in ended.error) == (2, True)
    assert "--grid" in (page := call("run", "pcg", "--help").out)
    assert not {"--n", "--nonzeros", "--index-dtype", "--x0"} & set(page.split())


def test_an_unknown_choice_has_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'fast'"):
        flags.choice(("fast", "exact"))("fats")


def test_parameters_are_checked_at_once_without_files() -> None:
    toy = Toy()
    check_without_files(toy, spec())  # type: ignore[arg-type]
    assert toy.asked == ({"batch": "3"}, {})


def test_with_files_parameters_wait_for_their_headers() -> None:
    toy = Toy()
    check_without_files(toy, spec(input=[("x", "/a.npy")]))  # type: ignore[arg-type]
    assert toy.asked is None


def test_an_input_that_the_workload_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no such input"):
        check_without_files(Toy(), spec(input=[("z", "/a.npy")]))  # type: ignore[arg-type]


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert flags.array_file("A=a/b.npy") == ("A", "/a/b.npy")
    assert flags.array_file("./e=f.npy") == ("", "/e=f.npy")


def test_everything_asked_for_is_in_the_spec() -> None:
    after = [Dependency(3), Dependency(4, "any")]
    made = job_spec(
        "toy",
        {"batch": "3"},
        {
            "output": [("", "/y.npy")], "devices": ("cpu",), "memory_limit": 256, "verify": True,
            "seed": 7, "label": "nightly", "after": after, "timeout": 600.0, "hold": True,
        },
        force=True,
    )  # fmt: skip
    assert (made.devices, made.memory_limit, made.verify) == (("cpu",), 256, True)
    assert (made.seed, made.label, made.params) == (7, "nightly", {"batch": "3"})
    assert (made.after, made.timeout, made.hold) == (tuple(after), 600.0, True)
    assert made.outputs[""].force  # type: ignore[union-attr]


def test_help_of_a_workload_shows_its_own_flags(call: Call) -> None:
    ended = call("run", "fft", "--help")

    assert ended.code == 0
    for flag in ("--batch", "--direction", "--input", "--memory-limit", "--verify", "--config"):
        assert flag in ended.out


def test_help_of_run_lists_the_workloads(call: Call) -> None:
    ended = call("run", "--help")

    assert "fft" in ended.out
    assert "matrix_update" in ended.out
