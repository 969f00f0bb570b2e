from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import CORES, Daemon, Gate, computes, metric, refused, says, until

import hetsched
from hetsched.cli.commands.metrics import parse_address
from hetsched.errors import UsageError

from .conftest import Call

pytestmark = pytest.mark.usefixtures("daemon")
DEVICES = "[queue]\nsmall_jobs = false\n" + CORES
TOY = "toys:Toy"
FFT = ("submit", "fft", "--batch", "2x8x8")
REPORT = {
    "schema", "job", "state", "workload", "load", "seconds", "predicted_seconds", "spread",
    "devices", "verified", "max_error", "params", "notes", "outputs", "error",
}  # fmt: skip
LINE = {"job", "workload", "params", "state", "reason", "priority", "label", "id"}


@pytest.fixture
def client(daemon: Daemon) -> Iterator[hetsched.Client]:
    with daemon.client() as client:
        yield client
        client.cancel_all()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with contextlib.closing(Gate(tmp_path / "gate")) as gate:
        yield gate


@pytest.fixture(scope="module")
def done(served: Daemon) -> int:
    """The number of a job that has ended, with its result in memory."""
    return int(served.call(*FFT, "--label", "example", "--json").json["job"])


def test_submit_follows_and_reports(call: Call) -> None:
    ended = call(*FFT)
    assert ended.code == 0
    assert re.search(r"^submitted \d+$", ended.err, re.MULTILINE)
    assert ended.out.startswith("device") and "fft: 2 units  kernels' time" in ended.out


def test_the_report_has_its_fields(call: Call, done: int) -> None:
    report = call("show", str(done), "--json").json
    assert set(report) >= REPORT
    assert (report["schema"], report["state"]) == ("hetsched.job/1", "done")
    for device in report["devices"]:
        assert {"device", "kind", "variant", "share", "seconds", "chunks"} <= set(device)


def test_status_lists_the_jobs(call: Call, done: int) -> None:
    answer = call("status", str(done), "--json").json
    (row,) = answer["jobs"]
    assert answer["schema"] == "hetsched.jobs/1"
    assert set(row) >= LINE
    assert (row["label"], row["state"]) == ("example", "done")
    assert "example" in call("status", str(done)).out


def test_status_selects_states(call: Call, client: hetsched.Client) -> None:
    held = client.submit(TOY, units=1, hold=True)
    answer = call("status", "-t", "held", "--json").json
    assert held.id in [row["job"] for row in answer["jobs"]]
    assert {row["reason"] for row in answer["jobs"]} == {"held"}


def test_history_lists_past_jobs(call: Call, done: int) -> None:
    answer = call("history", "-s", "done", "-S", "1h", "--json").json
    assert answer["schema"] == "hetsched.history/1"
    assert done in [row["job"] for row in answer["jobs"]]


def test_follow_prints_each_event(daemon: Daemon, client: hetsched.Client) -> None:
    job = client.submit(TOY, units=1, hold=True)
    with daemon.started("follow", str(job.id), "--json") as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        client.release(job.id)
        events = [first, *map(json.loads, following.stdout)]
        assert following.wait(60) == 0
    assert all(event["schema"] == "hetsched.event/1" for event in events)
    assert (events[0]["state"], events[-1]["state"]) == ("queued", "done")
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))


def test_a_result_is_saved_once_and_with_force_again(
    call: Call, done: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "y.npy")
    assert call("result", str(done), "-o", path).code == 0
    assert np.load(path).shape == (2, 8, 8)
    assert call("result", str(done), "-o", path).code == 73
    assert call("result", str(done), "-o", path, "--force").code == 0
    assert "2x8x8 complex64" in call("result", str(done)).out


def test_submit_can_go_on_without_waiting(call: Call) -> None:
    number = call(*FFT, "--parsable").out
    assert re.fullmatch(r"\d+\n", number)
    assert re.fullmatch(r"submitted \d+\n", call(*FFT, "--detach").out)
    accepted = call(*FFT, "--no-wait", "--json").json
    assert (accepted["schema"], accepted["durability"]) == ("hetsched.accepted/1", "durable")
    assert call("wait", number.strip(), str(accepted["job"])).code == 0


def test_submit_writes_files_and_verifies(call: Call, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((4, 16, 16))
    np.save(tmp_path / "x.npy", x)
    files = ("--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy"))
    report = call("submit", "fft", *files, "--verify", "--json").json
    assert report["verified"] is True
    assert report["outputs"] == {"y": str(tmp_path / "y.npy")}
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.fft.fft2(x), atol=1e-3)


def test_wait_gives_up_with_124_and_the_job_goes_on(
    call: Call, client: hetsched.Client, gate: Gate
) -> None:
    job = client.submit(TOY, units=1, gate=str(gate.path))
    ended = call("wait", str(job.id), "--timeout", "50ms")
    assert (ended.code, "50 ms" in ended.error) == (124, True)
    gate.open()
    assert job.exception(60) is None


def test_wait_has_the_code_of_the_first_job_that_failed(
    call: Call, client: hetsched.Client, done: int
) -> None:
    failed = client.submit("toys:Faulty", units=1, fault="error")
    cancelled = client.submit(TOY, units=1, hold=True)
    cancelled.cancel()
    assert call("wait", str(done), str(failed.id), str(cancelled.id)).code == 1
    assert call("wait", str(cancelled.id)).code == 130


def test_jobs_are_held_released_prioritized_and_cancelled_by_number(
    call: Call, client: hetsched.Client, gate: Gate
) -> None:
    computes(client.submit(TOY, units=1, gate=str(gate.path)))
    a, b = (str(client.submit(TOY, units=1).id) for _ in range(2))
    assert call("hold", a, b).out == f"held {a}\nheld {b}\n"
    assert call("release", a).out == f"released {a}\n"
    assert call("prioritize", a, b, "7").code == 0
    ended = call("hold", "999999", a)
    assert (ended.code, ended.out) == (66, f"held {a}\n")
    assert call("cancel", a, b).out == f"cancelled {a}\ncancelled {b}\n"


def test_a_job_runs_again_from_the_command_line(call: Call, done: int) -> None:
    number = call("retry", str(done), "--parsable").out.strip()
    assert int(number) > done
    assert call("wait", number).code == 0


def test_unknown_jobs_are_66(call: Call) -> None:
    for command in ("show", "explain", "wait", "result", "cancel", "follow"):
        ended = call(command, "999999")
        assert (ended.code, "no job 999999" in ended.error) == (66, True)


def test_metrics_count_jobs_by_their_end_and_exit_code(client: hetsched.Client) -> None:
    names = [
        'jobs_ended_total{code="0",state="done"}', 'jobs_ended_total{code="1",state="failed"}',
        'jobs_ended_total{code="130",state="cancelled"}', 'submissions_refused_total{code="65"}',
        "job_queue_seconds_count",
    ]  # fmt: skip
    before = [metric(client, name) for name in names]
    client.submit(TOY, units=7, devices="cpu0").result(60)
    client.submit("toys:Faulty", units=1, fault="error").exception(60)
    held = client.submit(TOY, units=1, hold=True)
    held.cancel()
    until(held.cancelled)
    with refused(65):
        client.submit("fft", batch="1000000000x512x512")
    assert [metric(client, name) for name in names] == [count + 1 for count in before[:4]] + [
        before[4] + 2
    ]
    assert metric(client, 'device_units_total{device="cpu0"}') >= 7
    assert metric(client, 'device_phase_seconds_total{device="cpu0",phase="compute"}') > 0
    assert 0 < metric(client, "process_open_fds") < metric(client, "process_max_fds")


def test_status_is_repeated_until_ctrl_c(daemon: Daemon, done: int) -> None:
    words = ("status", str(done), "--watch", "--interval", "100ms", "--json")
    with daemon.started(*words) as watching:
        assert watching.stdout is not None
        records = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    assert all(record["jobs"][0]["job"] == done for record in records)


def test_follow_prints_each_failed_attempt(
    daemon: Daemon, client: hetsched.Client, tmp_path: Path
) -> None:
    failures = tmp_path / "failures"
    failures.write_text("x")
    job = client.submit("toys:Faulty", units=1, retries=1, failures=str(failures), hold=True)
    with daemon.started("follow", str(job.id)) as following:
        assert following.stdout is not None
        assert "held" in following.stdout.readline()
        client.release(job.id)
        lines = following.stdout.read().splitlines()
    assert any("one of the failures" in line for line in lines)
    assert "done" in lines[-1]


def test_every_object_has_its_fields(call: Call, done: int) -> None:
    words = {
        ("clean", "--older", "9d"): {"jobs"},
        ("config", "show"): {"source", "config"},
        ("devices",): {"config", "devices", "absent", "restricted"},
        ("doctor",): {"code", "findings"},
        ("history", "-n", "1"): {"jobs"},
        ("metrics",): {"metrics"},
        ("models",): {"models"},
        ("models", "forget", "--variant", "none"): {"forgotten"},
        ("ping",): {"pid", "version", "uptime_seconds", "round_trip_seconds"},
        ("plan", "fft", "--batch", "4x8x8"): {"workload", "load", "devices", "iterations"},
        ("result", str(done)): {"job", "outputs"},
        ("status", "-s", "done"): {"jobs"},
    }
    for command, fields in words.items():
        assert set(call(*command, "--json").json) >= {"schema", *fields}, command


# ---- metrics


def test_prometheus_reads_the_text(call: Call) -> None:
    families = list(text_string_to_metric_families(call("metrics").out))

    assert {"hetsched_jobs", "hetsched_loop_longest_callback_seconds"} <= {
        family.name for family in families
    }
    assert all(family.documentation and family.type != "unknown" for family in families)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("127.0.0.1:9469", (socket.AF_INET, ("127.0.0.1", 9469))),
        ("localhost:1", (socket.AF_INET, ("127.0.0.1", 1))),
        ("127.1.2.3:0", (socket.AF_INET, ("127.1.2.3", 0))),
        ("[::1]:9469", (socket.AF_INET6, ("::1", 9469))),
        ("unix:/run/m.sock", (socket.AF_UNIX, "/run/m.sock")),
    ],
)
def test_addresses_on_this_machine(address: str, parsed: tuple[int, object]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:9469", "[::]:9469", "10.0.0.1:80", "example.org:80", "9469", "127.0.0.1:", "unix:",
     "127.0.0.1:65536", "127.0.0.1:-1", "", "::1"],
)  # fmt: skip
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"give 127\.0\.0\.1:9469"):
        parse_address(address)


def test_metrics_are_served_on_a_unix_socket_of_the_user(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with daemon.started("metrics", "--serve", f"unix:{path}") as server:
        says(server, "serving metrics")
        answers = [scrape(path), scrape(path)]
        mode = stat.S_IMODE(path.stat().st_mode)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130

    assert all("\nhetsched_up 1.0\n" in answer for answer in answers)
    assert (mode, path.exists()) == (0o600, False)


def test_an_address_in_use_is_73(call: Call, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "m.sock"))
        other.listen()
        ended = call("metrics", "--serve", f"unix:{tmp_path / 'm.sock'}")

    assert (ended.code, ended.error.endswith("Address already in use")) == (73, True)


def scrape(path: Path) -> str:
    """One request of Prometheus, as text."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()
