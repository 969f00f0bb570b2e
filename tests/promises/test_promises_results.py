"""Results are right, whatever the arrays, and the same with and without a daemon."""

from __future__ import annotations

import gc
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from served import Daemon, await_state, computes, refused
from toys import ToyParams

import hetsched

TOY = "toys:Toy"
FAULTY = "toys:Faulty"
RNG = np.random.default_rng(7)
PLANES = RNG.standard_normal((6, 12, 10)) + 1j * RNG.standard_normal((6, 12, 10))
ODD = {
    "complex64": PLANES.astype("complex64"),
    "fortran": np.asfortranarray(PLANES),
    "big-endian": PLANES.astype(">c16"),
    "real": PLANES.real,
    "integer": (100 * PLANES.real).astype("int16"),
    "boolean": PLANES.real > 0,
    "strided": np.repeat(PLANES, 2, axis=0)[::2],
    "backwards": PLANES[::-1],
}
PARTS = {"A.data": np.ones(3), "A.indices": np.arange(3), "A.indptr": np.arange(4)}


def same(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * abs(expected).max())


@pytest.mark.parametrize("name", ODD)
def test_any_array_of_numbers_is_transformed(engine: Any, name: str) -> None:
    same(engine.submit("fft", ODD[name]).result(60), np.fft.fft2(ODD[name]))


@pytest.mark.parametrize("name", ODD)
def test_any_file_of_numbers_is_transformed(engine: Any, name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ODD[name])
    path = engine.submit("fft", tmp_path / "x.npy", out=tmp_path / "y.npy").result(60)
    same(np.load(path), np.fft.fft2(ODD[name]))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_shared_arrays_are_used_in_place(engine: Any) -> None:
    x, y = engine.empty(PLANES.shape, "complex128"), engine.empty(PLANES.shape, "complex128")
    x[...] = PLANES
    result = engine.submit("fft", x, out=y, direction="inverse").result(60)
    same(y, np.fft.ifft2(PLANES))
    assert np.shares_memory(result, y)
    same(x, PLANES)


def test_a_plane_with_nan_spoils_only_itself(engine: Any) -> None:
    x = PLANES.copy()
    x[2, 3, 4] = np.nan
    y = engine.submit("fft", x, verify=True).result(60)
    assert [bool(np.isfinite(plane).all()) for plane in y] == [True, True, False, True, True, True]


def test_several_inputs_have_names(engine: Any) -> None:
    c, a, b = RNG.random((20, 30)), RNG.random((20, 5)), RNG.random((5, 30))
    result = engine.submit("matrix_update", {"C": c, "A": a, "B": b}, verify=True).result(60)
    same(result, c + a @ b)


def test_a_matrix_and_a_vector_in_files_are_read_when_their_job_starts(
    engine: Any, tmp_path: Path
) -> None:
    half = scipy.sparse.diags_array([2.0, 0.5], offsets=[0, 1], shape=(30, 30)).tocsr()
    inputs = {"A": tmp_path / "a.mtx", "b": tmp_path / "b.npy"}
    scipy.io.mmwrite(inputs["A"], scipy.sparse.eye_array(30).tocsr())
    np.save(inputs["b"], np.ones(30))
    job = engine.submit("pcg", inputs, hold=True, out=tmp_path / "x.npy", tolerance=1e-9)
    scipy.io.mmwrite(inputs["A"], half + half.T, symmetry="symmetric")
    engine.release(job.id)
    job.result(60)
    same((half + half.T) @ np.load(tmp_path / "x.npy"), np.ones(30))


def test_generated_data_depend_on_the_seed_alone(
    client: hetsched.Client, local: hetsched.Local
) -> None:
    jobs = [engine.submit("fft", batch="5x8x8", seed=3) for engine in (client, local, client)]
    first, *others = [job.result(60) for job in jobs]
    for other in others:
        same(other, first)
    assert abs(client.submit("fft", batch="5x8x8", seed=4).result(60) - first).max() > 0.1


def test_the_reports_of_both_engines_have_the_same_fields(
    client: hetsched.Client, local: hetsched.Local
) -> None:
    reports: list[Any] = []
    for engine in (client, local):
        job = engine.submit("fft", PLANES, verify=True)
        job.result(60)
        reports.append(job.report)
    assert type(reports[0]) is type(reports[1])
    for report in reports:
        assert (report.state, report.workload, report.load, report.verified) == (
            "done",
            "fft",
            6,
            True,
        )
        assert sum(device.share for device in report.devices) == 6
        assert all(sum(device.chunks) == device.share for device in report.devices)


def test_what_a_kernel_does_not_write_is_zero(engine: Any) -> None:
    for dtype in ("float64", "float32"):  # in shared memory itself, and in slots of devices
        x = np.ones((40, 4))
        assert (engine.submit(TOY, x, units=40, dtype=dtype).result(60) == 3).all()
        y = engine.submit(TOY, x, units=40, dtype=dtype, unwritten=40).result(60)
        assert (y == 0).all(), "data of an earlier job"


def test_a_wrong_result_fails_verification(engine: Any) -> None:
    job = engine.submit(FAULTY, np.ones((40, 4)), units=40, fault="spoil", verify=True)
    with refused(1, "verification"):
        job.result(60)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("error", "no such instruction"),
        ("SystemExit", "SystemExit"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("memory", "2.00 TiB"),
        ("recursion", "recursion"),
        ("unprintable", "Unprintable"),
        ("rebind", "can't replace the array 'y'"),
        ("update", "no attribute 'update'"),
    ],
)
def test_an_error_of_a_kernel_fails_its_own_job(engine: Any, fault: str, message: str) -> None:
    job = engine.submit(FAULTY, np.ones((40, 4)), units=40, fault=fault)
    with refused(1, message):
        job.result(60)
    assert (engine.submit(TOY, np.ones((40, 4)), units=40).result(60) == 3).all()


def test_a_cancelled_job_stops_leaves_its_inputs_alone_and_the_next_one_is_right(
    engine: Any,
) -> None:
    x = engine.empty((3000, 4), "float64")
    x[...] = 42
    job = engine.submit("toys:Slow", x, units=3000, milliseconds=20)
    computes(job)
    assert job.cancel()
    with pytest.raises(CancelledError):
        job.result(60)
    assert job.cancelled() and (x == 42).all()
    same(engine.submit("fft", PLANES).result(60), np.fft.fft2(PLANES))


def test_a_callback_hears_every_state(engine: Any) -> None:
    states: list[Any] = []
    job = engine.submit("fft", PLANES, follow=states.append)
    job.result(60)
    await_state(job, lambda state: state is states[-1])
    names = list(dict.fromkeys(type(state).__name__ for state in states))
    assert names[-1] == "Done" and set(names) <= {"Queued", "Running", "Done"}


def test_a_callback_that_raises_harms_no_job(engine: Any) -> None:
    def raises(state: Any) -> None:
        raise RuntimeError("not my job")

    same(engine.submit("fft", PLANES, follow=raises).result(60), np.fft.fft2(PLANES))


def test_a_result_that_takes_longer_than_its_timeout_goes_on(engine: Any, gate: Any) -> None:
    job = engine.submit(TOY, np.ones((4, 4)), units=4, gate=str(gate.path))
    with refused(124, "it continues"):
        job.result(0.01)
    gate.open()
    assert (job.result(60) == 3).all()


def test_a_job_explains_itself(engine: Any) -> None:
    job = engine.submit("fft", batch="64x32x32")
    job.result(60)
    text = str(job.explain())
    assert "64 units" in text and "why this split" in text
    lines = job.timeline()
    units = sum(chunk.units for line in lines.values() for chunk in line.chunks)
    assert units == 64


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"workload": "ftf", "batch": "1x8x8"}, 2, "did you mean 'fft'"),
        ({"workload": "fft", "batch": "0x8x8"}, 2, "at least 1"),
        ({"workload": "fft", "batch": "1x8x8", "devices": "cqu"}, 2, "did you mean cpu"),
        ({"workload": "fft", "batch": "1x8x8", "direction": "foward"}, 2, "forward"),
        ({"workload": "fft", "batch": "1000000000x512x512"}, 65, "the largest load that fits"),
        ({"workload": "fft", "arrays": np.ones(5)}, 65, "three axes"),
        ({"workload": "fft", "batch": "1x8x8", "devices": "gpu0"}, 69, "gpu0"),
        ({"workload": "heat", "grid": "4x4", "out": np.empty(3)}, 2, "final, steps: name them"),
        ({"workload": "matrix_update", "arrays": PLANES}, 2, "C, A, B: name them, "),
        ({"workload": "pcg", "arrays": PARTS | {"A": "a.mtx"}}, 2, "A.data is part of A: give"),
        ({"workload": "pcg", "arrays": {"A": np.eye(3)}}, 65, "is a sparse matrix, not one array"),
        ({"workload": "pcg", "arrays": {"A.data": np.ones(3)}}, 2, "lacks A.indices, A.indptr"),
        ({"workload": "pcg", "arrays": {"B": np.ones(3)}}, 2, "no input 'B'; it has A, b, x0"),
    ],
)
def test_a_wrong_request_is_refused_with_its_code(
    engine: Any, arguments: dict[str, Any], code: int, words: str
) -> None:
    with refused(code, words):
        engine.submit(**arguments).result(60)


def test_an_array_that_can_never_fit_is_refused(engine: Any) -> None:
    with refused(65):
        engine.empty((1 << 30, 1 << 20), "complex128")


def test_the_parameters_of_plug_ins_are_checked(engine: Any) -> None:
    assert ToyParams().units == 40
    with refused(2, "units"):
        engine.submit(TOY, units="many").result(60)
    with refused(2, "colour"):
        engine.submit(TOY, units=4, colour="red").result(60)


def test_a_result_can_be_fetched_by_number_after_its_submitter_has_dropped_it(
    daemon: Daemon, client: hetsched.Client
) -> None:
    job = client.submit("fft", batch="2x8x8")
    y, number = np.array(job.result(60)), job.id
    del job
    gc.collect()
    client.empty((1 << 20,), "uint8")  # goes the same way, after the result was dropped
    for _ in range(2):
        np.testing.assert_array_equal(client.job(number).result(60), y)
        gc.collect()
    with daemon.client() as other:
        np.testing.assert_array_equal(other.job(number).result(60), y)


def test_a_dropped_result_makes_room_for_the_next_one(client: hetsched.Client) -> None:
    first = client.submit("fft", batch="2x8x8", seed=1)
    first.result(60)
    number = first.id
    del first
    gc.collect()
    client.empty((1 << 20,), "uint8")
    later = [client.submit("fft", batch="2x8x8", seed=2) for _ in range(2)]
    for job in later:
        job.result(60)
    with refused(66, "hetsched retry"):
        client.job(number).result(60)


def test_a_result_stays_valid_after_its_client(daemon: Daemon) -> None:
    with daemon.client() as client:
        result = client.submit("fft", PLANES).result(60)
    same(result, np.fft.fft2(PLANES))


@pytest.mark.parametrize("name", ["x" * 100_000, "x" * 100_000 + ":y"])
def test_a_long_name_is_cut_in_messages(engine: Any, name: str) -> None:
    with refused(2, "workload 'xxx") as caught:
        engine.submit(name)
    assert len(str(caught.value)) < 1000


def test_a_configuration_is_named_in_its_error() -> None:
    wrong: Any = 5
    with refused(2, "config: 5 should be"):
        hetsched.Local(wrong)
    with refused(66, "no config 'xxx"):
        hetsched.Local("x" * 1000)
