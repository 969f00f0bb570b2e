"""Iterative jobs: right whatever happens to their devices, and continued from checkpoints."""

from __future__ import annotations

import os
import signal
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from served import Daemon, Place, await_state, refused, until
from toys import diffused

import hetsched

DIFFUSION = "toys:Diffusion"
ROWS, ITERATIONS = 24, 300
X = np.random.default_rng(3).standard_normal((ROWS, 4))


def submit(engine: Any, **options: Any) -> Any:
    return engine.submit(DIFFUSION, X, **{"rows": ROWS, "iterations": ITERATIONS, **options})


def right(job: Any) -> bool:
    np.testing.assert_allclose(job.result(60).y, diffused(X, ITERATIONS))
    return bool(job.report.iterations == ITERATIONS)


def iterates(job: Any) -> Any:
    return await_state(job, lambda state: getattr(state, "iteration", None))


@pytest.mark.parametrize("balance", ["auto", "functional", "constant", "imbalance-factor", "none"])
def test_every_balancer_gives_the_result_of_one_process(engine: Any, balance: str) -> None:
    job = submit(engine, balance=balance)
    assert right(job)
    assert sum(device.share for device in job.report.devices) == ROWS


def test_conjugate_gradients_solve_a_sparse_system(engine: Any) -> None:
    n = 500
    A = scipy.sparse.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    job = engine.submit("pcg", {"A": A, "b": np.ones(n)}, tolerance=1e-8)
    solution = job.result(60)
    assert np.allclose(A @ solution.x, np.ones(n), atol=1e-6)
    assert solution.iterations == len(solution.residuals) > 0
    assert solution is job.result() and solution.x is solution["x"] and list(solution) == ["x"]
    words = f"x: {solution.iterations} iterations, residual {solution.residual:.3g}, converged"
    assert repr(solution) == f"<IterativeResult of {words}>"


def test_a_job_that_does_not_converge_fails_with_its_last_result(engine: Any) -> None:
    job = submit(engine, iterations=5, tolerance=1e-30)
    with refused(1) as caught:
        job.result(60)
    error: Any = caught.value
    np.testing.assert_allclose(error.result.y, diffused(X, 5))


def test_what_no_stage_writes_is_zero(engine: Any) -> None:
    assert right(submit(engine))
    y = submit(engine, unwritten=True).result(60).y
    assert (y == 0).all(), "data of an earlier job"


def test_progress_has_iteration_and_rows(engine: Any, tmp_path: Path) -> None:
    job, seen = submit(engine, slow_until=str(tmp_path / "go")), list[int]()
    job.add_progress_callback(lambda state: seen.append(state.iteration))
    state = iterates(job)
    assert 0 < state.iteration < ITERATIONS
    assert sum(device.share for device in state.devices) == ROWS
    (tmp_path / "go").touch()
    assert right(job)
    assert seen and seen == sorted(set(seen))


def test_the_history_of_a_result_outlives_its_client(daemon: Daemon) -> None:
    with daemon.client() as client:
        result = submit(client).result(60)
    assert len(result.residuals) == ITERATIONS


def test_a_job_continues_from_a_checkpoint_of_the_same_problem_alone(
    engine: Any, tmp_path: Path
) -> None:
    path = tmp_path / "job.npz"
    assert right(submit(engine, checkpoint=path, every=0.05, slow_until=str(path)))
    with np.load(path, allow_pickle=False) as saved:
        assert saved["state/u"].shape == X.shape
    again = submit(engine, resume=path)
    assert right(again)
    assert 0 < again.report.continued_after < ITERATIONS
    longer = submit(engine, resume=path, iterations=2 * ITERATIONS)
    np.testing.assert_allclose(longer.result(60).y, diffused(X, 2 * ITERATIONS))

    with refused(65, "input x has other values"):
        engine.submit(DIFFUSION, 2 * X, rows=ROWS, iterations=ITERATIONS, resume=path).result(60)
    (tmp_path / "half.npz").write_bytes(path.read_bytes()[:-50])
    for name, code in (("half.npz", 65), ("none.npz", 66)):
        with refused(code):
            submit(engine, resume=tmp_path / name).result(60)


def test_a_cancelled_job_saves_a_checkpoint_and_says_how_to_continue(
    engine: Any, tmp_path: Path
) -> None:
    path = tmp_path / "job.npz"
    job = submit(engine, checkpoint=path, every="1h", slow_until=str(tmp_path / "never"))
    iterates(job)
    job.cancel()
    with pytest.raises(CancelledError):
        job.result(60)
    assert f"--resume {path} continues" in job.progress().error.message
    assert right(submit(engine, resume=path))


def test_a_file_that_is_no_checkpoint_is_not_replaced(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.npz").write_bytes(b"mine")
    with refused(73, "not a checkpoint"):
        submit(engine, checkpoint=tmp_path / "mine.npz").result(60)
    with refused(73):
        submit(engine, checkpoint=tmp_path / "none" / "job.npz").result(60)
    assert (tmp_path / "mine.npz").read_bytes() == b"mine"


def test_a_failed_attempt_goes_on_from_its_own_checkpoint(engine: Any, tmp_path: Path) -> None:
    path, go = tmp_path / "job.npz", tmp_path / "go"
    limits = {"timeout": 2.0, "retries": 3}
    job = submit(engine, checkpoint=path, every=0.1, slow_until=str(go), **limits)
    await_state(job, lambda state: getattr(state, "failures", 0))
    go.touch()
    assert right(job)
    assert job.report.continued_after > 0


def test_a_checkpoint_that_cannot_be_written_costs_the_job_nothing(
    engine: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    job = submit(
        engine, checkpoint=folder / "job.npz", every=0.05, slow_until=str(folder), hold=True
    )
    folder.rmdir()
    engine.release(job.id)
    await_state(job, lambda state: (getattr(state, "iteration", 0) or 0) >= 30)
    folder.mkdir()
    assert right(job)
    assert any(note.startswith("no checkpoint after ") for note in job.report.notes)


def test_a_checkpoint_is_for_one_job_and_no_output(engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.npz"
    first = submit(engine, checkpoint=path, hold=True)
    with refused(2, f"job {first.id} writes its checkpoints there"):
        submit(engine, checkpoint=path)
    after = submit(engine, checkpoint=path, after=first, hold=True)
    for job in after, first:
        job.cancel()
    with refused(2, "both a checkpoint and an output"):
        submit(engine, checkpoint=tmp_path / "y.npy", out={"y": tmp_path / "y.npy"})


def test_a_killed_device_costs_its_job_an_iteration(
    client: hetsched.Client, tmp_path: Path
) -> None:
    marker = str(tmp_path / "died")
    job = submit(client, die_at=ITERATIONS // 2, marker=marker)
    assert right(job)
    assert Path(marker).exists()
    assert right(submit(client))


def test_a_disabled_device_hands_over_its_rows(
    daemon: Daemon, client: hetsched.Client, tmp_path: Path
) -> None:
    job = submit(client, slow_until=str(tmp_path / "go"))
    iterates(job)
    try:
        client.switch_devices(disable=["cpu0"])
        shares = {device.device: device.share for device in job.progress().devices}
        if len(shares) > 1:
            await_state(
                job,
                lambda state: (
                    not any(device.share for device in state.devices if device.device == "cpu0")
                ),
            )
    finally:
        client.switch_devices(enable=["cpu0"])
    (tmp_path / "go").touch()
    assert right(job)


def test_ctrl_c_of_run_saves_a_checkpoint_that_run_continues(tmp_path: Path) -> None:
    place, path = Place(tmp_path), str(tmp_path / "job.npz")
    words = ("run", DIFFUSION, "--rows", "24", "--iterations", "3000")
    slow = ("--slow-until", str(tmp_path / "go"), "--checkpoint", path, "--every", "1h")
    with place.started(*words, *slow) as process:
        until((tmp_path / "go.begun").exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, f"--resume {path} continues" in err) == (130, True)
    assert os.path.exists(path)
    report = place.call(*words, "--resume", path, "--verify", "--json").json
    assert (report["verified"], report["iterations"]) == (True, 3000)
