"""Flags that follow from a workload's parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from hetsched.cli.request_flags import JobOptions, job_options
from hetsched.cli.workload_flags import Flag, check_without_files, flags_of
from hetsched.errors import UsageError

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


def test_every_field_becomes_a_flag() -> None:
    assert flags_of(Toy()) == [  # type: ignore[arg-type]
        Flag("batch", "how many"),
        Flag("mode", "[default: fast]", choices=("exact", "fast")),
        Flag("in_place", "[default: False]", switch=True),
        Flag("rounds", ""),
    ]


def test_underscores_become_hyphens() -> None:
    assert Flag("in_place", "").name == "--in-place"


def test_an_unknown_choice_has_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'fast'"):
        Flag("mode", "", choices=("fast", "exact")).check("fats")


def test_parameters_are_checked_at_once_without_files() -> None:
    toy = Toy()

    check_without_files(toy, {"batch": "3"}, job_options())  # type: ignore[arg-type]

    assert toy.asked == ({"batch": "3"}, {})


def test_with_files_parameters_wait_for_their_headers() -> None:
    toy = Toy()

    check_without_files(toy, {}, job_options(input=["x=a.npy"]))  # type: ignore[arg-type]

    assert toy.asked is None


def test_an_input_that_the_workload_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no such input"):
        check_without_files(Toy(), {}, job_options(input=["z=a.npy"]))  # type: ignore[arg-type]


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    request = job_options(input=["A=a/b.npy", "c=d.npy"], output=["./e=f.npy"], force=True)

    assert request.inputs == {"A": "/a/b.npy", "c": "/d.npy"}
    assert request.outputs == {"": "/e=f.npy"}
    assert request.spec("toy", {}).outputs[""].force  # type: ignore[union-attr]


def test_everything_asked_for_is_in_the_spec() -> None:
    request = JobOptions({}, {}, False, ("cpu",), 256, True, 7, -3)

    spec = request.spec("toy", {"batch": "3"})

    assert (spec.devices, spec.memory_limit, spec.verify) == (("cpu",), 256, True)
    assert (spec.seed, spec.priority, spec.params) == (7, -3, {"batch": "3"})


def test_help_of_a_workload_shows_its_own_flags(call: Call) -> None:
    ended = call("run", "fft", "--help")

    assert ended.code == 0
    for flag in ("--batch", "--direction", "--input", "--memory-limit", "--verify", "--config"):
        assert flag in ended.out


def test_help_of_run_lists_the_workloads(call: Call) -> None:
    ended = call("run", "--help")

    assert "fft" in ended.out
    assert "matrix_update" in ended.out
