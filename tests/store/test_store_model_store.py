"""The model store in this process, the next one, and a concurrent one."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.models.curve_windows import MAX_SIZES
from hetsched.models.curves.phases.phase_curve import PhaseCurve
from hetsched.models.evidence.history import History
from hetsched.models.evidence.observations import WINDOW
from hetsched.models.evidence.run_medians import run_medians, split_runs
from hetsched.models.evidence.samples import Sample
from hetsched.store import database, model_records
from hetsched.store.model_export import collect, forget
from hetsched.store.model_store import ModelKey, ModelStore

KEY = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu0 Some Processor", "memory")
OTHER = ModelKey("fft", "512x512 complex64", "pyfftw", "0.15", "cpu1 Some Processor", "memory")


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModelStore]:
    opened = ModelStore(tmp_path / "models.db" if request.param == "file" else None)
    yield opened
    opened.close()


def total(units: int, seconds: float) -> Sample:
    return Sample("total", units, seconds)


def model_of(store: ModelStore, key: ModelKey = KEY) -> DeviceModel:
    model = store.load(key)
    assert model is not None
    return model


def stored(path: Path, curve: str) -> int:
    """How many observations of a curve the file has."""
    (model,) = collect(path).models
    return sum(seen.curve == curve for seen in model.observations)


def test_a_key_without_observations_has_no_model(store: ModelStore) -> None:
    assert store.load(KEY) is None
    assert store.runs(KEY) == 0
    assert store.keys() == []


def test_a_core_gets_piecewise_linear_curves_and_no_link(store: ModelStore) -> None:
    store.observe(KEY, [Sample("compute", 4, 2.0), total(10, 5.5)], 1.0)

    model = model_of(store)

    assert isinstance(model.total, PiecewiseLinear)
    assert isinstance(model.compute, PiecewiseLinear)
    assert (model.time(10), model.compute.time(4), model.link) == (5.5, 2.0, False)


def test_the_phases_of_a_device_with_a_link_are_lines_where_a_line_fits(store: ModelStore) -> None:
    phases = [
        Sample(curve, x, gap + slope * x)
        for curve, gap, slope in (("compute", 1, 0.5), ("h2d", 2, 0.25), ("d2h", 0, 0.125))
        for x in (4, 8)
    ]  # fmt: skip
    store.observe(KEY, [*phases, total(12, 9.0)], 1.0)

    model = model_of(store)

    curves = [model.compute, model.h2d, model.d2h]
    assert [(c.gap, c.slope) for c in curves if isinstance(c, PhaseCurve)] == [
        (1, 0.5),
        (2, 0.25),
        (0, 0.125),
    ]


def test_the_caller_can_specify_whether_there_is_a_link(store: ModelStore) -> None:
    store.observe(KEY, [Sample("compute", 4, 2.0), total(4, 2.0)], 1.0)

    linked, core = store.load(KEY, True), store.load(KEY, False)

    assert linked is not None and isinstance(linked.compute, PhaseCurve)
    assert core is not None and isinstance(core.compute, PiecewiseLinear)


def test_fresh_processes_are_discounted_once_whoever_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    writer, reader = ModelStore(path), ModelStore(path)
    model_of_reader = lambda: (model_of(reader).time(10), model_of(reader).cold.ratio(10))  # noqa: E731
    for at in range(3):
        writer.observe(KEY, [total(10, 1.0)], float(at))
    for at in range(3, 8):
        writer.observe(KEY, [total(9, 1.1), Sample("cold", 10, 1.27)], float(at))
        assert model_of_reader() == pytest.approx((1.0, 1.27))
    writer.close()
    reader.close()

    reader = ModelStore(path)
    assert model_of_reader() == pytest.approx((1.0, 1.27))
    reader.close()


def test_a_returned_model_never_changes(store: ModelStore) -> None:
    store.observe(KEY, [total(10, 5.0)], 1.0)
    before = model_of(store)

    store.observe(KEY, [total(20, 40.0)], 2.0)

    assert before.time(20) == 10.0
    assert model_of(store).time(20) == 40.0
    assert model_of(store) is model_of(store)


def test_load_many_keeps_the_order(store: ModelStore) -> None:
    store.observe_many([(KEY, [total(1, 1.0)]), (OTHER, [total(1, 2.0)])], 1.0)

    loaded = store.load_many([OTHER, KEY, ModelKey("a", "b", "c", "d", "e", "f")])

    assert [model and model.time(1) for model in loaded] == [2.0, 1.0, None]
    assert store.keys() == [KEY, OTHER]


def test_runs_are_counted(store: ModelStore) -> None:
    for _ in range(7):
        store.observe(KEY, [total(10, 5.0)], 1.0)

    assert (store.runs(KEY), store.runs(OTHER)) == (7, 0)


def test_a_forgotten_model_can_be_learnt_again(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    store.observe_many([(KEY, [total(1, 1.0)]), (OTHER, [total(1, 2.0)])], 1.0)
    assert forget(path, lambda key: key == KEY) == [KEY]

    assert (store.load(KEY), store.runs(KEY), store.keys()) == (None, 0, [OTHER])
    store.observe(KEY, [total(1, 9.0)], 2.0)

    assert (model_of(store).time(1), store.runs(KEY)) == (9.0, 1)


def test_the_next_process_loads_equal_models(tmp_path: Path) -> None:
    first = ModelStore(tmp_path / "models.db")
    for run in range(30):
        first.observe(KEY, [Sample("compute", 1 + run % 7, 1.0 + run), total(run + 1, 2.0)], 1.0)
    expected = model_of(first)
    first.close()

    second = ModelStore(tmp_path / "models.db")

    assert second.runs(KEY) == 30
    assert model_of(second).total.points.tolist() == expected.total.points.tolist()  # type: ignore[attr-defined]
    assert model_of(second).compute.points.tolist() == expected.compute.points.tolist()  # type: ignore[attr-defined]


def test_two_stores_see_what_the_other_learns(tmp_path: Path) -> None:
    first, second = ModelStore(tmp_path / "models.db"), ModelStore(tmp_path / "models.db")
    assert second.load(KEY) is None

    first.observe(KEY, [total(10, 5.0)], 1.0)
    second.observe(KEY, [total(20, 6.0)], 1.0)

    for store in (first, second):
        assert model_of(store).total.points.tolist() == [[10.0, 5.0], [20.0, 6.0]]  # type: ignore[attr-defined]
        assert store.runs(KEY) == 2


def test_forgetting_reaches_all_open_stores(tmp_path: Path) -> None:
    first, second = ModelStore(tmp_path / "models.db"), ModelStore(tmp_path / "models.db")
    first.observe(KEY, [total(10, 5.0)], 1.0)
    assert second.load(KEY) is not None

    forget(tmp_path / "models.db", lambda key: True)

    assert (first.load(KEY), second.load(KEY)) == (None, None)


def test_old_observations_are_dropped_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)

    for run in range(MAX_SIZES + 20):
        store.observe(KEY, [Sample("compute", 8, 1.0)] * 20 + [total(run + 1, 1.0 + run)], 1.0)

    assert stored(path, "compute") == WINDOW
    assert stored(path, "total") == MAX_SIZES
    assert len(model_of(store).total.points) == MAX_SIZES  # type: ignore[attr-defined]


def _learn(path: Path, first: int, count: int) -> None:
    database.BUSY_MS = 60_000  # for a machine that is busy with something else
    store = ModelStore(path)
    for i in range(count):
        key = ModelKey("fft", str(first + i), "v", "1", "cpu0", "memory")
        store.observe_many([(key, [total(1, 1.0)]), (KEY, [total(1 + i % 3, 1.0)])], 1.0)
    store.close()


def test_processes_that_learn_concurrently_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_learn, args=(path, 100 * i, 25)) for i in range(3)]

    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = ModelStore(path)
    assert len(store.keys()) == 76
    assert store.runs(KEY) == 75


def test_a_run_counts_by_its_median_of_each_curve_and_size() -> None:
    chunks = [Sample("compute", 8, float(i)) for i in (9, 1, 2)]

    medians = run_medians([*chunks, Sample("h2d", 8, 3.0), total(9, 1.0)])

    compute = Sample("compute", 8, 2.0, chunks=3)
    assert medians == [Sample("h2d", 8, 3.0), compute, total(9, 1.0)]


def test_consecutive_runs_are_split() -> None:
    run = run_medians([Sample("compute", 4, 1.0), Sample("compute", 5, 1.0), total(9, 3.0)])
    rest = [total(7, 3.0)]

    assert list(split_runs([*run, *run, *rest, *rest])) == [run, [*run, *rest], rest]


def test_without_a_total_there_is_no_model() -> None:
    assert History(1, [Sample("compute", 1, 1.0)]).model() is None


def test_any_thread_may_use_it_one_at_a_time(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models.db")

    with ThreadPoolExecutor(1) as worker:
        worker.submit(store.observe, KEY, [total(10, 5.0)], 1.0).result()
        assert worker.submit(model_of, store).result().time(10) == 5.0
    store.close()

    assert ModelStore(tmp_path / "models.db").runs(KEY) == 1


@pytest.mark.parametrize("change", [2.0, 0.5])
def test_a_change_of_speed_scales_older_observations_in_the_file_too(
    tmp_path: Path, change: float
) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    before = [(60, 6.0), (50, 5.0), (70, 7.0), *[(50, 5.0)] * 4]
    for units, seconds in [*before, *[(50, change * 5.0)] * 3]:
        store.observe(KEY, [Sample("compute", units, seconds), total(units, seconds)], 1.0)
    expected = [[50.0, change * 5.0], [60.0, change * 6.0], [70.0, change * 7.0]]
    assert model_of(store).total.points.tolist() == expected  # type: ignore[attr-defined]
    store.close()
    assert model_of(ModelStore(path)).total.points.tolist() == expected  # type: ignore[attr-defined]
    assert stored(path, "total") == 5


def test_a_device_s_change_of_speed_applies_to_its_other_models_and_in_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    variant = msgspec.structs.replace(KEY, variant="mkl")
    size = msgspec.structs.replace(KEY, speed_key="64x64 complex64")
    storage, work = (msgspec.structs.replace(KEY, **{k: "x"}) for k in ("storage", "workload"))
    for key in (KEY, variant, size, storage, work, OTHER):
        for _ in range(5):
            store.observe(key, [total(50, 5.0)], 1.0)
    for _ in range(3):
        store.observe(KEY, [total(50, 10.0)], 1.0)
    for now in (store, ModelStore(path)):
        assert [model_of(now, key).time(50) for key in (KEY, variant, size)] == [10.0] * 3
        assert [model_of(now, key).time(50) for key in (storage, work, OTHER)] == [5.0] * 3
        now.close()


@given(st.lists(st.tuples(st.sampled_from([40, 45, 50, 80]), st.sampled_from([1, 2, 9]))))
def test_any_observations_give_equal_models_in_the_next_process(
    tmp_path_factory: pytest.TempPathFactory, observed: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("state") / "models.db"
    first, second = ModelStore(path), ModelStore(path)
    for units, pace in observed:
        first.observe(KEY, [total(units, units * float(pace))], 1.0)
    expected = first.load(KEY)
    first.close()
    for reader in (second, ModelStore(path)):
        loaded = reader.load(KEY)
        reader.close()
        assert (loaded is None) == (expected is None)
        if loaded and expected:
            assert loaded.total.points.tolist() == expected.total.points.tolist()  # type: ignore[attr-defined]


def contended(seconds: float) -> Sample:
    return Sample("total", 10, seconds, contended=True)


def test_the_first_contended_run_does_not_stay_for_processes_that_run_one_job(
    tmp_path: Path,
) -> None:
    for seconds in (20.0, 1.0, 1.0, 1.0):
        store = ModelStore(tmp_path / "models.db")
        store.observe(KEY, [contended(seconds)], 1.0)
        store.close()

    assert model_of(ModelStore(tmp_path / "models.db")).time(10) == 1.0


def test_contention_that_lasts_is_predicted_by_processes_that_run_one_job(tmp_path: Path) -> None:
    path = tmp_path / "models.db"
    runs = [total(10, 1.0)] * 3 + [contended(2.0)] * 5
    for number, run in enumerate(runs):
        store = ModelStore(path)
        assert number == 0 or model_of(store).time(10) == (2.0 if number > 5 else 1.0)
        store.observe(KEY, [run], 1.0)
        store.close()

    assert model_of(ModelStore(path)).time(10) == 2.0


def test_a_device_half_as_fast_is_detected_after_three_runs_in_three_processes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "models.db"
    changes = []
    for seconds in [1.0] * 8 + [2.0] * 3:
        store = ModelStore(path)
        changes.append(store.observe_many([(KEY, [total(10, seconds)])], 1.0))
        store.close()

    assert changes[:-1] == [{}] * 10
    assert changes[-1][KEY].factor == 2.0
    assert model_of(ModelStore(path)).time(10) == 2.0


def test_a_change_of_speed_survives_a_file_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "models.db"
    store = ModelStore(path)
    for _ in range(10):
        store.observe(KEY, [total(10, 1.0)], 1.0)

    def full(*arguments: object) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(model_records, "last_id", full)  # before the commit
        for _ in range(5):
            store.observe(KEY, [total(10, 2.0)], 1.0)
    believed = model_of(store).time(10)
    assert believed > 1.5

    store.observe(KEY, [total(10, 2.0)], 1.0)
    assert model_of(store).time(10) > 1.5
    store.close()
    assert model_of(ModelStore(path)).time(10) > 1.5
