"""Flags that follow from a workload's parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from hetsched.cli import flags
from hetsched.cli.workloads import check_without_files, job_spec, params_flags
from hetsched.errors import UsageError
from hetsched.job import JobSpec

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
