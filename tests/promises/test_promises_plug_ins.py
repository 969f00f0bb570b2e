"""Whatever a plug-in returns or raises costs its own job, with one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from served import Daemon, refused

from hetsched.errors import JobFailed

KERNEL_FAILS = "wrong_plug_ins:KernelFails"
X = np.ones((4, 4))


@pytest.mark.parametrize(
    ("plug_in", "code", "words"),
    [
        ("LoadIsTrue", 65, "load() is True, not a whole number"),
        ("LoadIsUnprintable", 65, "load() is an object of class Unprintable"),
        ("LoadIsHuge", 65, "81 bits"),
        (
            "LoadRaises",
            1,
            "load failed: UnprintableError: (its text can't be read: RuntimeError) (",
        ),
        ("LoadExits", 1, "load failed: SystemExit: 3"),
        ("DemandIsInfinite", 65, "demand"),
        ("DemandIsUnprintable", 65, "demand() is an object of class Unprintable"),
        ("KeyIsNoText", 65, "speed_key() is an object of class Unprintable, not text"),
        ("KeyIsSurrogate", 65, "ud800', not text that UTF-8 can encode"),
        ("KeyIsHuge", 65, "speed_key() has 10000000 characters"),
        ("KeyExits", 1, "speed_key failed: SystemExit: 3"),
        ("ArrayIsSurrogate", 65, "name of an array is"),
        ("ArrayIsRecord", 65, "not a dtype of numbers"),
        ("NameIsNumPys", 65, "the name of workload wrong_plug_ins:NameIsNumPys is"),
        ("ErrorExits", 65, "(its text can't be read: SystemExit)"),
        ("ErrorHasUnprintable", 65, "(its text can't be read: RuntimeError)"),
        ("ParamsAreSurrogate", 65, "can't be sent to a device process"),
        ("ErrorIsSurrogate", 1, "never seen: \\ud800"),
        ("VariantsRaise", 1, "variants failed: LookupError: no library"),
    ],
)
def test_what_a_plug_in_must_not_return_or_raise_fails_its_job(
    engine: Any, plug_in: str, code: int, words: str
) -> None:
    with refused(code, words) as found:
        engine.submit(f"wrong_plug_ins:{plug_in}", X, units=4).result(60)

    assert "bug in hetsched" not in str(found.value)
    assert (engine.submit("toys:Toy", X, units=4).result(60) == 3).all()


@pytest.mark.parametrize(
    ("plug_in", "words"),
    [
        ("IsItsResult", "can't be the result 'y'"),
        ("ArrayIsTwice", "two arrays have the same name (x, x, u, means)"),
        ("ArrayIsInOut", "has no inout arrays"),
        ("ReductionIsTwice", "diffusion: reduction 'total' belongs to two stages"),
        ("NoIterations", "max_iterations() is 0; it must be at least 1"),
    ],
)
def test_an_iterative_plug_in_that_cannot_be_is_refused(
    engine: Any, plug_in: str, words: str
) -> None:
    with refused(2, words):
        engine.submit(f"wrong_plug_ins:{plug_in}", rows=4).result(60)


@pytest.mark.parametrize(
    ("plug_in", "words"),
    [
        ("ResidualIsShort", r"residual() is an array of float64 (1,), not of"),
        ("ToleranceIsNan", "tolerance() is nan"),
    ],
)
def test_a_check_that_checks_nothing_fails_its_job(engine: Any, plug_in: str, words: str) -> None:
    with refused(65, words):
        engine.submit(f"wrong_plug_ins:{plug_in}", X, units=4, verify=True).result(60)


def test_numbers_and_text_of_numpys_are_numbers_and_text(engine: Any) -> None:
    assert (engine.submit("wrong_plug_ins:NumPyToy", X, units=4).result(60) == 3).all()


def test_every_list_shows_the_job_of_a_plug_in_with_text_of_numpys(
    daemon: Daemon, client: Any
) -> None:
    job = client.submit("wrong_plug_ins:NumPyToy", X, units=4)
    assert (job.result(60) == 3).all()
    for command in ("status", "history", "show", "explain"):
        words = [command, str(job.id)] if command in ("show", "explain") else [command]
        assert (ended := daemon.call(*words)).code == 0, ended.err


def test_whatever_a_plug_in_says_is_a_short_line(engine: Any) -> None:
    job = engine.submit("toys:Toy", X, units=4, fault="chatter")
    assert (job.result(60) == 3).all()
    notes = [note for note in job.report.notes if note.startswith(("no end", "\\ud800"))]
    assert len(notes) == 2 and all(len(note) < 400 for note in notes), notes


def test_the_error_of_a_kernel_says_where(engine: Any) -> None:
    job = engine.submit(KERNEL_FAILS, X, units=4)

    with pytest.raises(
        JobFailed, match=r"no such number \\ud800 \(.*wrong_plug_ins.py, line"
    ) as f:
        job.result(60)

    assert f.value.frames.count("wrong_plug_ins.py") == 2, "its own frames, and none of ours"
    assert "in divide" in f.value.__notes__[0]


def test_show_and_the_log_have_the_frames_of_a_kernel(daemon: Daemon, client: Any) -> None:
    job = client.submit(KERNEL_FAILS, X, units=4)
    with pytest.raises(JobFailed):
        job.result(60)

    shown = daemon.call("show", str(job.id))

    assert "no such number" in shown.out
    assert "wrong_plug_ins.py" in shown.out and "in divide" in shown.out
    assert "in divide" in daemon.log.read_text()
