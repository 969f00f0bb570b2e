from __future__ import annotations

import datetime

import pytest

from hetsched.cli import flags
from hetsched.cli.flags import future, past
from hetsched.errors import UsageError

from .conftest import Call


def test_what_follows_from_the_inputs_has_no_flag(call: Call) -> None:
    ended = call("run", "pcg", "--grid", "4x4", "--nonzeros", "3")
    assert (ended.code, "no such option" in ended.error) == (2, True)
    assert "--grid" in (page := call("run", "pcg", "--help").out)
    assert not {"--n", "--nonzeros", "--index-dtype", "--x0"} & set(page.split())


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert flags.array_file("A=a/b.npy") == ("A", "/a/b.npy")
    assert flags.array_file("./e=f.npy") == ("", "/e=f.npy")


def test_iterative_workloads_have_more_flags(call: Call) -> None:
    words = ("run", "diffusing_workload:Diffusion", "--rows", "9", "--iterations", "5")
    more = ("--balance", "imbalance-factor", "--warm-up", "dfpa", "--every", "1m")
    assert call(*words, *more, "--checkpoint", "c.npz").code == 0
    assert call(*words, "--resume", "none.npz").code == 66


ZONE = datetime.timezone(datetime.timedelta(hours=2))
NOW = datetime.datetime(2026, 11, 22, 17, 0, tzinfo=ZONE)


def at(day: int, hour: int, minute: int = 0, second: int = 0) -> float:
    return datetime.datetime(2026, 11, day, hour, minute, second, tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("18:30", at(22, 18, 30)),
        ("9:05", at(23, 9, 5)),
        ("17:00", at(23, 17)),
        ("23:59:58", at(22, 23, 59, 58)),
        ("2h", at(22, 19)),
        ("+90m", at(22, 18, 30)),
        ("2026-11-23T06:00+02:00", at(23, 6)),
        ("2026-11-23 06:00+02:00", at(23, 6)),
    ],
)
def test_a_deadline_is_a_duration_a_time_of_day_or_a_date(text: str, moment: float) -> None:
    assert future(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2026-13-01", "2001-01-01T00:00", "-2h"])
def test_a_malformed_or_past_deadline_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"examples: 18:30, 2026-11-23T06:00, 2h"):
        future(text, NOW)


@pytest.mark.parametrize(
    ("text", "moment"),
    [("7d", at(15, 17)), ("18:30", at(21, 18, 30)), ("2026-11-20T00:00+02:00", at(20, 0))],
)
def test_a_past_time_is_counted_backwards(text: str, moment: float) -> None:
    assert past(text, NOW) == moment


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--label " + "x" * 200, "should be text of at most 128 characters"),
        ("--id=", "--id: empty; give a name, or omit it"),
        ("--id a,b", "--id: 'a,b' should be at most 128 letters, digits"),
        ("--after x", "--after: 'x' should be a job number"),
        ("--after 1:maybe", "--after: '1:maybe' has an unknown condition"),
        ("--retries 101", "101 is out of range (0 to 100)"),
        ("--priority 20", "20 is out of range (-20 to 19)"),
        ("--timeout 0", "--timeout: 0.0 should be seconds above 0"),
        ("--timeout x", "--timeout: 'x' is not a time"),
        ("--deadline 1999-01-01", "--deadline: '1999-01-01': that is in the past"),
        ("--parsable --json", "--parsable and --json"),
        ("--balance functionl", "--balance: unknown value 'functionl'; did you mean 'functi"),
        ("--warm-up x", "--warm-up: unknown value 'x'; choose from: dfpa"),
        ("--every soon", "--every: 'soon' is not a time"),
        ("--every 5s", "--every: there is no checkpoint"),
        ("--checkpoint=", "--checkpoint: the file name is missing"),
    ],
)
def test_a_wrong_value_is_refused_before_the_daemon_is_asked(
    call: Call, words: str, message: str
) -> None:
    ended = call("submit", "heat", "--grid", "8x8", *words.split())
    assert (ended.code, message in ended.error) == (2, True), ended.err
