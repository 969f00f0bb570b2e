from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from served import VIRTUAL, Daemon

from hetsched.cli.main import main

from .conftest import DEFAULT_FFT, Call

DEVICES = VIRTUAL
SUBMIT = ("submit", "fft", "--batch", "64x32x32")
BATCH = ("fft", "--batch", "64x32x32", "--config", "virtual.toml")


@pytest.fixture(autouse=True)
def configuration() -> None:
    Path("virtual.toml").write_text(VIRTUAL, encoding="utf-8")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The store that two runs make."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "virtual.toml").write_text(VIRTUAL, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HETSCHED_STATE_DIR", str(folder / "state"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        assert [main(["run", *BATCH]) for _ in range(2)] == [0, 0]
    return (folder / "state" / "models.db").read_bytes()


@pytest.fixture
def store(two_runs: bytes) -> Path:
    """Two runs are known; the file that knows them."""
    path = Path(os.environ["HETSCHED_STATE_DIR"]) / "models.db"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(two_runs)
    return path


def planned(call: Call, *words: str) -> dict[str, Any]:
    ended = call("plan", *BATCH, *words, "--json")
    assert ended.code == 0, ended.err
    (line,) = ended.out.splitlines()
    record: dict[str, Any] = json.loads(line)
    return record


def test_before_anything_was_measured_it_says_so_and_leaves_nothing(call: Call) -> None:
    ended = call("plan", *BATCH)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[1] == (
        f"64 units, no prediction: no measurements for {DEFAULT_FFT} at this size on core0, emu0"
    )
    assert "core0: 32 units, an equal share: " in ended.out
    assert "factored by two" in ended.out
    assert not Path(os.environ["HETSCHED_STATE_DIR"]).exists()
    assert os.listdir() == ["virtual.toml"]


def test_what_is_planned_is_what_is_run(call: Call, store: Path, two_runs: bytes) -> None:
    plan = planned(call)
    assert store.read_bytes() == two_runs
    report = json.loads(call("run", *BATCH, "--json").out)

    assert (plan["schema"], plan["job"], plan["state"]) == (
        "hetsched.explanation/1",
        None,
        "planned",
    )
    assert plan["predicted_seconds"] == report["predicted_seconds"]
    for one, done in zip(plan["devices"], report["devices"], strict=True):
        assert (one["device"], one["variant"]) == (done["device"], done["variant"])
        assert (one["planned"], one["share"]) == (done["share"], 0)
        chunks = [units for count, units in one["chunks"] for _ in range(count)]
        assert chunks == done["chunks"]
    assert 0 < plan["bound"] <= plan["predicted_seconds"]


def test_flags_mean_what_they_mean_to_run(call: Call) -> None:
    (one,) = planned(call, "--devices", "emu0", "--memory-limit", "64KiB")["devices"]

    assert (one["device"], one["planned"]) == ("emu0", 64)
    assert max(units for _, units in one["chunks"]) <= 4
    assert "64 KiB" in one["chunk_reason"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("fft", "--batch", "0x4x4"), 2, "COUNT must be at least 1"),
        (("fft", "--input", "nope.npy"), 66, "no such file"),
        (("fft", "--batch", "900000000x512x512"), 65, "the largest load that fits"),
        ((*BATCH, "--devices", "emu0", "--memory-limit", "1KiB"), 65, "one unit needs 16 KiB"),
        ((*BATCH, "--trace", "none/x.json"), 73, "there is no folder"),
        ((*BATCH, "--trace", ""), 2, "--trace '': the file name is missing"),
        ((*BATCH, "--trace", "."), 73, "is a directory"),
        ((*BATCH, "--trace", "/dev/full", "--force"), 73, "is a device"),
        ((*BATCH, "--plot", "a.svg", "--trace", "a.svg"), 2, "--plot has the same file"),
        ((*BATCH, "--plot", "x.bmp"), 2, "--plot x.bmp: the name must end in one of"),
        ((*BATCH, "--seed", "3"), 2, "no option --seed"),
        ((*BATCH, "--plot", "plan.png"), 2, "nothing was measured yet"),
        ((*BATCH, "--trace", "virtual.toml"), 73, "exists; give another name, or replace it"),
        ((*BATCH, "--schedule", "rong"), 2, "'rong' should be one of best, ring, multi-install"),
        (("jacobi", "--n", "60", *BATCH[3:], "--plot", "job.png"), 2, "no iterations to draw"),
        (("jacobi", "--n", "64", "--config", "desktop"), 2, "a machine profile has no costs"),
        (("--config", "desktop"), 2, "which workload? It comes before --config. Choose from: "),
    ],
)
def test_errors_are_those_of_run(call: Call, words: tuple[str, ...], code: int, said: str) -> None:
    if "--plot" in words:
        pytest.importorskip("matplotlib")

    ended = call("plan", *words)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.error


def test_a_damaged_store_is_reported_once_and_not_changed(call: Call, store: Path) -> None:
    store.write_bytes(b"not a database" * 100)

    ended = call("plan", *BATCH)

    assert ended.code == 0
    assert ended.err.count("models.db") == 1
    assert "no prediction" in ended.out
    assert store.read_bytes() == b"not a database" * 100


def test_a_store_that_may_only_be_read_will_do(call: Call, store: Path) -> None:
    store.chmod(0o400)

    assert planned(call)["predicted_seconds"] is not None
    assert [path.name for path in store.parent.iterdir()] == ["models.db"]


def tracks(file: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """(device, track) -> its events."""
    events = json.loads(Path(file).read_text())["traceEvents"]
    devices = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X":
            place = devices[event["pid"]], names[event["pid"], event["tid"]]
            found.setdefault(place, []).append(event)
    return found


@pytest.mark.usefixtures("store")
def test_a_trace_of_a_run_has_the_report_s_seconds(call: Call) -> None:
    pytest.importorskip("matplotlib")
    ended = call("run", *BATCH, "--trace", "t.json", "--plot", "t.svg", "--json")

    report = json.loads(ended.out)
    found = tracks("t.json")
    assert "trace: t.json (open it at https://ui.perfetto.dev)" in ended.err
    assert "<svg" in Path("t.svg").read_text()
    for one in report["devices"]:
        for phase in ("copy in", "compute", "copy out"):
            events = found.get((one["device"], f"measured: {phase}"), [])
            seconds = one[f"{phase.replace(' ', '_')}_seconds"]
            assert sum(e["dur"] for e in events) == pytest.approx(1e6 * seconds, abs=1.0)
            ends = sorted((e["ts"], e["ts"] + e["dur"]) for e in events)
            assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(ends))
        units = [e["args"]["units"] for e in found[one["device"], "measured: compute"]]
        assert units == one["chunks"]
        assert (one["device"], "predicted: compute") in found


def test_without_matplotlib_nothing_is_run(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    ended = call("run", *BATCH, "--plot", "x.png")

    assert (ended.code, ended.out, "submitted" in ended.err) == (69, "", False)
    assert "hetsched[plot]" in ended.error


def test_a_plan_of_an_iterative_job_gives_the_rows_of_the_first_iteration(call: Call) -> None:
    ended = call("plan", "jacobi", "--n", "60", "--config", "virtual.toml")

    assert ended.code == 0, ended.err
    assert "60 rows, which move while it runs if that pays" in ended.out
    rows = [line.split() for line in ended.out.split("first iteration:")[1].splitlines()[2:]]
    assert sum(int(row[2]) for row in rows) == 60
    assert all(row[3:] == ["not", "measured"] for row in rows)


def test_a_machine_profile_is_planned_by_its_costs(call: Call) -> None:
    """256 planes of 2 MiB on the shipped desktop take what `simulate machine` says: 39.9 ms."""
    ended = call("plan", "fft", "--batch", "256x512x512", "--config", "desktop", "--json")

    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)
    assert plan["predicted_seconds"] == pytest.approx(39.9e-3, rel=2e-3)
    assert [d["device"] for d in plan["devices"]] == [*(f"cpu{n}" for n in range(8)), "gpu0"]


@pytest.mark.usefixtures("store")
def test_a_schedule_is_planned_and_run_as_asked(call: Call) -> None:
    words = (*BATCH, "--devices", "emu0", "--schedule", "factoring")
    plan = call("plan", *words, "--json")
    ran = call("run", *words, "--json")

    assert plan.code == ran.code == 0, plan.err + ran.err
    explained, report = json.loads(plan.out), json.loads(ran.out)
    assert explained["schedule"] == "factoring"
    (device,) = explained["devices"]
    sizes = [units for count, units in device["chunks"] for _ in range(count)]
    assert sizes == report["devices"][0]["chunks"]
    assert sizes[-2:] == [1, 1]


# ---- of the daemon's jobs


@pytest.mark.usefixtures("daemon")
def test_a_job_of_the_daemon_is_explained(call: Call) -> None:
    for _ in range(2):
        call(*SUBMIT)
    report = json.loads(call(*SUBMIT, "--json", "--trace", "submit.json").out)

    number = report["job"]
    ended = call("explain", str(number), "--trace", "explain.json")

    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"job {number}, done: fft batch=64x32x32")
    for title in ("seconds, measured / predicted:", "where the time went", "why this split:",
                  "why these chunks:", "alternatives (predicted):",
                  "what would help:"):  # fmt: skip
        assert title in ended.out
    record = json.loads(call("explain", str(number), "--json").out)
    assert (record["schema"], record["job"]) == ("hetsched.explanation/1", number)
    assert record["seconds"] == report["seconds"]
    assert Path("submit.json").read_text() == Path("explain.json").read_text()
    assert ("emu0", "measured: copy in") in tracks("explain.json")
    missing = call("explain", str(number + 6))
    assert f"no job {number + 6}; the newest is {number}" in missing.error


def test_files_that_exist_stay(call: Call, daemon: Daemon) -> None:
    Path("t.json").write_text("old")
    with daemon.client() as client:
        before = client.status(limit=1)

    refused = [call(*words, "--trace", "t.json") for words in (("explain", "1"), SUBMIT)]

    assert [(one.code, one.out) for one in refused] == [(73, "")] * 2
    with daemon.client() as client:
        assert client.status(limit=1) == before, "nothing was submitted"
    assert Path("t.json").read_text() == "old"


@pytest.mark.usefixtures("daemon")
def test_who_does_not_wait_gets_no_trace(call: Call) -> None:
    ended = call(*SUBMIT, "--detach", "--trace", "t.json")

    assert (ended.code, ended.out) == (2, "")
    assert "hetsched explain ID" in ended.error
