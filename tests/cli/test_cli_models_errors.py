from __future__ import annotations

import json
import os
from pathlib import Path

import apsw
import pytest
from virtual_machine import VIRTUAL

from hetsched import paths
from hetsched.models.samples import Sample
from hetsched.store.model_records import ModelKey
from hetsched.store.model_store import ModelStore
from tests.store.learning import observe

from .conftest import Call


@pytest.fixture(autouse=True)
def configuration() -> None:
    Path("virtual.toml").write_text(VIRTUAL, encoding="utf-8")


@pytest.fixture
def learnt() -> None:
    store = ModelStore(paths.models_path())
    key = ModelKey("fft", "x:split:32x32:complex64 1", "pyfftw", "1", "core0 emulated", "memory")
    observe(store, key, [Sample("total", 4, 2.0)], 1.0)
    store.close()


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("models lst", 2, "did you mean 'list'"),
        ("models shwo fft", 2, "did you mean 'show'"),
        ("models nope", 2, "no workload 'nope'"),
        ("models ftt", 2, "no workload 'ftt'; did you mean 'fft'"),
        ("models list nope", 2, "no workload 'nope'"),
        ("models show ftt", 2, "did you mean 'fft'"),
        ("models show fft", 66, "hetsched models measure fft"),
        ("models show", 2, "WORKLOAD"),
        ("models measure ftt --batch 4x8x8", 2, "did you mean 'fft'"),
        ("models measure", 2, "matrix_update"),
        ("models measure jacobi", 2, "jacobi is iterative: it's measured while it runs"),
        ("models measure fft --batch 4x8x8 --sizes 4,x", 2, "--sizes: 'x' is not an integer"),
        ("models measure fft --batch 4x8x8 --sizes 0", 2, "--sizes: 0 is out of range (1 to"),
        ("models measure fft --batch 4x8x8 --until 0%", 2, "between 0% and 100%"),
        ("models measure fft --batch 4x8x8 --until 2.5", 2, "2.5%"),
        ("models measure fft --batch 4x8x8 --until nan", 2, "2.5%"),
        ("models measure fft --batch 4x8x8 --most 0", 2, "--most"),
        ("models measure fft --batch 4x8x8 --size 4", 2, "did you mean --sizes"),
        ("models measure fft --batch 4x8x8 --input x.npy", 2, "no option --input"),
        ("models measure fft --batch 4x8", 2, "COUNTxROWSxCOLS"),
        ("models measure fft --batch 4x8x8 --variant fftw", 2, "did you mean 'pyfftw'"),
        ("models measure fft --batch 4x8x8 --devices cor0", 2, "did you mean core0"),
        ("models measure fft --batch 4x512x512 --sizes 4 --device emu0", 65, "one unit"),
        ("models import nowhere.json", 66, "no such file"),
        ("models import .", 65, "is a directory"),
        ("models import virtual.toml", 65, "not an export"),
        ("models import newer.json", 78, "newer hetsched"),
        ("models export nowhere/x.json", 73, "no folder"),
        ("models export --workload ftt", 2, "did you mean 'fft'"),
        ("models forget", 2, "forget which models"),
        ("models forget fft --all", 2, "forget which models"),
        ("models forget ftt", 2, "did you mean 'fft'"),
    ],
)
def test_what_is_wrong_is_one_line(call: Call, words: str, code: int, why: str) -> None:
    Path("newer.json").write_text('{"schema": "hetsched.models.export/7"}')
    config = ("--config", "virtual.toml") if "measure fft" in words else ()

    ended = call(*words.split(), *config)

    assert (ended.code, why in ended.error) == (code, True), ended.err
    assert ended.out == ""
    assert sorted(os.listdir()) == ["newer.json", "virtual.toml"]


def test_a_workload_of_which_nothing_is_learnt_is_no_mistake(call: Call) -> None:
    ended = call("models", "list", "fft")

    assert (ended.code, ended.out.startswith("no models of 'fft' yet")) == (0, True)


def many_sizes(count: int) -> None:
    """Models of the FFT of `count` sizes of planes."""
    store = ModelStore(paths.models_path())
    for side in range(8, 8 + count):
        speed_key = f"x:split:{side}x{side}:complex64 {side**2}"
        key = ModelKey("fft", speed_key, "pyfftw", "1", "core0 emulated", "memory")
        observe(store, key, [Sample("total", units, 1e-6 * units) for units in (4, 16)], 1.0)
    store.close()


def test_a_picture_has_a_panel_for_each_set_of_parameters(call: Call) -> None:
    pytest.importorskip("matplotlib")
    many_sizes(3)

    ended = call("models", "show", "fft", "--plot", "curves.svg")

    assert ended.code == 0, ended.err
    titles = [f">{side}x{side} complex64, " for side in range(8, 11)]
    text = Path("curves.svg").read_text()
    assert [text.count(title) for title in titles] == [1] * 3
    again = call("models", "show", "fft", "--plot", "curves.svg", "--of", "9x9")
    assert (again.code, "--force" in again.error) == (73, True)


def test_more_panels_than_can_be_drawn_are_refused(call: Call) -> None:
    pytest.importorskip("matplotlib")
    many_sizes(41)
    ended = call("models", "show", "fft", "--plot", "curves.svg")
    assert (ended.code, ended.out) == (2, "")
    assert "41 panels, but one picture holds 40; choose with --of" in ended.error


def test_parameters_are_chosen_by_a_part_of_their_text(call: Call) -> None:
    many_sizes(3)

    chosen = call("models", "show", "fft", "--of", "9x9")

    assert {line for line in chosen.out.splitlines() if line.startswith("fft ")} == {
        "fft 9x9 complex64, 8.1e-05 Mflop per unit"
    }
    unknown = call("models", "show", "fft", "--of", "99x99")
    assert (unknown.code, "--of 99x99: no such models" in unknown.error) == (2, True)


def make(harm: str) -> None:
    path = paths.models_path()
    if harm == "broken":
        path.write_bytes(b"no database at all " * 200)
        return
    if harm == "foreign":
        path.unlink()
    connection = apsw.Connection(str(path))
    is_foreign = harm == "foreign"
    connection.execute("CREATE TABLE notes(x)" if is_foreign else "PRAGMA user_version = 77")
    connection.close()


@pytest.mark.parametrize(
    ("harm", "why"),
    [("broken", "not a database"), ("newer", "newer hets"), ("foreign", "another program")],
)
def test_a_store_that_cannot_be_used_is_said_and_stops_no_job(
    learnt: None, call: Call, harm: str, why: str
) -> None:
    call("models", "export", "mine.json")
    make(harm)
    before = paths.models_path().read_bytes()

    for words in ("list", "show fft", "export", "forget --all", "import mine.json"):
        ended = call("models", *words.split())
        assert (ended.code, why in ended.error) == (78, True), words
    ended = call("doctor", "--json")
    (problem,) = (one for one in json.loads(ended.out)["findings"] if one["code"])
    assert (ended.code, problem["what"], why in problem["found"]) == (78, "models", True)
    ended = call("run", "fft", "--batch", "4x32x32", "--config", "virtual.toml")
    assert ended.code == 0, ended.err
    if harm != "broken":
        assert "stay in memory" in ended.err
        assert paths.models_path().read_bytes() == before
    else:
        aside = paths.models_path().with_name("models.db.unreadable-1")
        assert f"it is now {aside}" in ended.err
        assert aside.read_bytes() == before
