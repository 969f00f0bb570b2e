"""Which devices had no share is kept in models.db, shared by all processes."""

from pathlib import Path

import pytest

from hetsched.models.evidence.probe_state import ProbeState
from hetsched.models.evidence.samples import Sample
from hetsched.store.model_records import ModelKey, ProbeKey, forget
from hetsched.store.model_store import ModelStore
from tests.store.learning import observe

KEY = ProbeKey("fft", "64x64", "cpu1 Some Processor", "memory", 32)
STATE = ProbeState(idle_runs=3, probes=2, repeats=1, ratio=0.25)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "models.db"


def test_a_state_outlives_its_process(path: Path) -> None:
    store = ModelStore(path)
    store.set_probe_state(KEY, STATE)
    store.close()

    assert ModelStore(path).probe_state(KEY) == STATE
    assert ModelStore(path, read_only=True).probe_state(KEY) == STATE


def test_a_device_that_has_a_share_again_has_no_state(path: Path) -> None:
    store = ModelStore(path)
    store.set_probe_state(KEY, STATE)
    store.flush()
    store.set_probe_state(KEY, None)
    store.close()

    assert ModelStore(path).probe_state(KEY) is None


def test_another_process_sees_what_was_written(path: Path) -> None:
    first, second = ModelStore(path), ModelStore(path)
    assert second.probe_state(KEY) is None
    first.set_probe_state(KEY, STATE)
    first.flush()

    second.load_many([])

    assert second.probe_state(KEY) == STATE


def test_forgotten_models_take_their_states_along(path: Path) -> None:
    model = ModelKey(KEY.workload, KEY.speed_key, "numpy", "2", KEY.device, KEY.storage, "all")
    store = ModelStore(path)
    observe(store, model, [Sample("total", 4, 1.0)], 0.0)
    store.set_probe_state(KEY, STATE)
    store.close()

    forget(path, lambda key: key == model)

    assert ModelStore(path).probe_state(KEY) is None
