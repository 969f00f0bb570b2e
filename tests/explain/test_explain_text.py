"""An account in words: what is said, what is left out, how many devices share a line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain import Account, DeviceAccount, Phases, Spent, Way, WhatIf
from hetsched.explain.text import sizes, text

LINE = Timeline(3.0, (ChunkTimeline(2, (0.0, 0.5), (0.5, 2.5), (2.5, 3.0)),))


def gpu(**more: Any) -> DeviceAccount:
    settings: dict[str, Any] = {
        "device": "gpu0", "kind": "cuda", "variant": "cupy", "planned": 2, "share": 2,
        "chunks": ((1, 2),), "mode": "ring", "slots": 2, "runs": 7, "predicted_seconds": 2.0,
        "seconds": 3.0, "predicted": Phases(copy_in=0.4, compute=1.2, copy_out=0.4),
        "measured": Phases(copy_in=0.5, compute=2.0, copy_out=0.5), "hidden": 0.25,
        "spent": Spent(computing=2.0, copying=1.0, between=0.0, before=0.0, idle=1.0),
        "bound": 1.9, "ways": (Way("best factoring", 2.5),), "plan": Timeline(2.0, ()),
        "timeline": LINE, "why": "a reason",
    }  # fmt: skip
    return DeviceAccount(**settings | more)


def core(number: int = 0, **more: Any) -> DeviceAccount:
    settings: dict[str, Any] = {
        "device": f"cpu{number}", "kind": "cpu", "variant": "fftw", "planned": 2, "share": 2,
        "chunks": ((2, 1),), "runs": 1, "predicted_seconds": 4.0, "seconds": 4.0,
        "predicted": Phases(compute=4.0), "measured": Phases(compute=4.0),
        "spent": Spent(computing=4.0, copying=0.0, between=0.0, before=0.0, idle=0.0),
        "timeline": Timeline(4.0, (ChunkTimeline(2, None, (0.0, 4.0), None),)),
    }  # fmt: skip
    return DeviceAccount(**settings | more)


def told(*devices: DeviceAccount, **more: Any) -> str:
    settings: dict[str, Any] = {
        "job": 3, "state": "done", "workload": "toy", "load": 4, "seconds": 4.0,
        "predicted_seconds": 4.0, "devices": devices,
    }  # fmt: skip
    return str(Account(**settings | more))


def test_all_of_it() -> None:
    found = told(
        core(),
        gpu(),
        params={"rows": 4},
        fluid_bound=2.0,
        whole_unit_bound=3.2,
        reasons=("cpu0: 2 units by guess",),
        ways=(Way("only gpu0", 6.0),),
        what_if=(WhatIf("a faster link", 3.0, 0.25), WhatIf("more memory", 4.0, 0.0)),
        notes=("of interest",),
    )

    assert (
        found
        == """\
job 3, done: toy rows=4
4 units in 4 s (predicted 4 s, +0.0 %)
by the models no split takes less than 3.2 s (2 s if units could be cut)
the plan is 25.0 % above that, the run was 25.0 % above

device  variant  share  chunks
cpu0    fftw         2  2x1
gpu0    cupy         2  2, a ring of 2 slots

seconds, measured / predicted:
device        whole        copy in      compute       copy out  hidden
cpu0    4.00 / 4.00              -  4.00 / 4.00              -       -
gpu0    3.00 / 2.00  0.500 / 0.400  2.00 / 1.20  0.500 / 0.400    25 %

where the time went, of 4 s:
device  computing  only copying  between chunks  before the first  after the last
cpu0      100.0 %         0.0 %           0.0 %             0.0 %           0.0 %
gpu0       50.0 %        25.0 %           0.0 %             0.0 %          25.0 %

why this split:
  cpu0: 2 units by guess
  note: of interest
why these chunks:
  gpu0: a reason

instead, by the models:
  only gpu0  6 s  +50.0 %
  gpu0, 2 units in 2 s as planned, no plan takes less than 1.9 s:
    best factoring  2.5 s  +25.0 %

to be noticed:
  gpu0 took 50 % longer than predicted; its model knew 7 runs
  gpu0 waited for its copies for 25 % of the time

what would help:
  a faster link: 3 s, 25 % less
  would save less than 1 %: more memory"""
    )


def test_a_plan_speaks_of_nothing_that_was_measured() -> None:
    nothing: dict[str, Any] = {
        "share": 0, "seconds": None, "measured": None, "hidden": None, "spent": None,
        "timeline": None,
    }  # fmt: skip
    found = told(core(**nothing), gpu(**nothing), job=None, state="planned", seconds=None)

    assert found.startswith("a plan: toy\n4 units, predicted to take 4 s\n")
    assert "seconds, predicted:" in found
    assert "done" not in found
    for section in ("where the time went", "to be noticed", "measured"):
        assert section not in found


def test_phases_that_nobody_knows_have_no_column() -> None:
    planned = core(share=0, seconds=None, measured=None, predicted=None, spent=None, timeline=None)
    found = told(planned, job=None, state="planned", seconds=None)

    assert found.endswith("seconds, predicted:\ndevice  whole\ncpu0     4.00")


def test_what_was_never_measured_is_named() -> None:
    unknown = core(runs=None, predicted_seconds=None, predicted=None)
    found = told(unknown, gpu(), predicted_seconds=None)

    assert "4 units in 4 s, no prediction: fftw was never measured at this on cpu0" in found


def test_a_job_that_ended_early_says_how_far_it_came() -> None:
    found = told(core(share=1), gpu(), state="failed", error="kernel broke", seconds=3.0)

    assert found.splitlines()[:3] == [
        "job 3, failed: toy",
        "it ended early: kernel broke",
        "3 of 4 units in 3 s (predicted 4 s)",
    ]
    assert "device  variant  share  done  chunks" in found
    assert "others had been given" not in found


def test_a_job_of_which_nothing_was_planned_has_two_lines() -> None:
    found = told(state="cancelled", error="job 3 was cancelled", seconds=None)

    assert found.splitlines()[:2] == [
        "job 3, cancelled: toy",
        "it ended early: job 3 was cancelled",
    ]


def test_units_that_moved_are_told() -> None:
    found = told(core(share=3), gpu(share=1))

    assert "cpu0 did 1 unit that others had been given" in found


def test_of_a_share_that_became_another_no_prediction_was_wrong() -> None:
    assert "than predicted" in told(core(seconds=3.0), gpu())
    assert "than predicted" not in told(core(seconds=3.0, share=1), gpu(share=3))


def test_a_run_faster_than_the_bound_is_told_as_it_is() -> None:
    found = told(core(), seconds=4.0, fluid_bound=4.5, whole_unit_bound=5.0)

    assert "the plan is 20.0 % below that, the run was 20.0 % below" in found


def test_many_cores_share_a_row_and_a_reason() -> None:
    cores = [core(n, planned=2 + n % 2, why="small") for n in range(64)]
    reasons = tuple(f"cpu{n}: {2 + n % 2} units by the speed of fftw" for n in range(64))

    found = told(*cores, reasons=reasons)

    assert len(found.splitlines()) < 30
    assert "  cpu0 to cpu63: 2 to 3 units each by the speed of fftw" in found
    assert "  cpu (64): small" in found
    assert sum(line.startswith("cpu (64)") for line in found.splitlines()) == 3


def test_many_cores_without_a_share_have_one_line() -> None:
    reasons = tuple(f"cpu{n}: no share, team0 ends sooner" for n in range(64))

    assert "  cpu0 to cpu63: no share, team0 ends sooner\n" in told(core(), reasons=reasons) + "\n"


def test_times_that_are_as_expected_are_not_worth_a_word() -> None:
    assert "to be noticed" not in told(core(), core(1))


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ((), "-"),
        (((1, 8),), "8"),
        (((8, 12), (1, 3)), "8x12 + 3"),
        (tuple((1, n) for n in range(1, 8)), "1 + 2 + 3 + ... + 5 + 6 + 7 (7 chunks)"),
    ],
)
def test_chunks_are_told_briefly(chunks: tuple[tuple[int, int], ...], said: str) -> None:
    assert sizes(chunks, sum(count for count, _ in chunks)) == said


def test_nothing_in_it_steers_a_terminal() -> None:
    assert "\x1b" not in told(core(variant="\x1b[2J"))


def test_an_account_travels() -> None:
    account = Account(job=3, state="done", workload="toy", load=4, devices=(core(), gpu()))
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(account), type=Account) == account


def test_a_device_that_ends_sooner_is_told_where_another_split_of_whole_units_was_faster() -> None:
    def ran(number: int, units: int, seconds: float) -> DeviceAccount:
        chunk = ChunkTimeline(units, None, (0.0, seconds), None)
        times = {"planned": units, "share": units, "seconds": seconds}
        return core(number, **times, predicted_seconds=None, timeline=Timeline(seconds, (chunk,)))

    balanced = told(ran(0, 12, 1.2), ran(1, 13, 1.3), load=25, seconds=1.3)
    astray = told(ran(0, 12, 1.2), ran(1, 16, 1.6), load=28, seconds=1.6)

    assert "finished" not in balanced
    assert "cpu1 finished 33 % after cpu0;" in astray
    assert "all could have been done after 1.4 s, 12 % sooner" in astray


def test_on_a_narrow_terminal_lines_are_folded_at_spaces_and_nothing_is_lost() -> None:
    wide = gpu(
        chunks=tuple((1, size) for size in range(1, 40)), planned_chunks=39,
        why="the plan found for its phases and memory, 0.1 % above the least that any takes",
    )  # fmt: skip
    account = Account(
        job=3, state="done", workload="toy", load=4, seconds=4.0, predicted_seconds=4.0,
        devices=(core(), wide), whole_unit_bound=3.2, fluid_bound=2.0,
        what_if=(WhatIf("less", 4.0, 0.0), *(WhatIf(f"link {n}", 4.0, 0.0) for n in range(20))),
    )  # fmt: skip

    found = text(account, 64)

    assert max(map(len, found.splitlines())) <= 64
    assert "between" in found and "4.00/4.00" in found
    assert set(found.replace("/", " ").split()) == set(str(account).replace("/", " ").split())
    assert text(account, 500) == str(account)
