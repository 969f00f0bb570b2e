from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
from served import VIRTUAL, Ended, Place, says

from hetsched import paths
from hetsched.config import load
from hetsched.models.races import Race
from hetsched.models.samples import Sample
from hetsched.store.model_store import ModelKey, ModelStore

from .conftest import DEFAULT_FFT, Call

UNEVEN = VIRTUAL.replace('d2h = { gap = "10us", rate = "1GB/s" }', "duplex = [0.8, 0.7]") + (
    'd2h = { gap = "20us", unit = "3us" }\n'
)
SIZES = (1, 4, 16, 64)
MEASURE = ("models", "measure", "fft", "--batch", "64x32x32", "--config", "virtual.toml")
PLANE_FLOPS, PLANE_BYTES = 5 * 32 * 32 * 10, 32 * 32 * 8


@pytest.fixture(autouse=True)
def configuration() -> None:
    Path("virtual.toml").write_text(UNEVEN, encoding="utf-8")


@dataclass(frozen=True)
class Learnt:
    """A measurement of two devices at four sizes: how it ended, and the store that it made."""

    ended: Ended
    store: bytes


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """Measured once; it is the command itself that is looked at."""
    place = Place(tmp_path_factory.mktemp("measured"), UNEVEN)
    ended = place.call(*MEASURE[:-2], "--sizes", "1,4", "--sizes", "16,64", "--json")
    return Learnt(ended, (place.folder / "state" / "models.db").read_bytes())


@pytest.fixture
def learnt(measured: Learnt) -> Ended:
    """That measurement is what is known."""
    paths.models_path().parent.mkdir(parents=True)
    paths.models_path().write_bytes(measured.store)
    return measured.ended


def configured(device: str, curve: str, units: int) -> float:
    config, _ = load("virtual.toml")
    (found,) = (one for one in config.device if one.name == device)
    cost = getattr(found, curve)
    return float(cost.seconds(units, PLANE_BYTES, PLANE_FLOPS))


def shown(call: Call, *words: str) -> dict[str, Any]:
    """Device -> its model."""
    record = json.loads(call("models", "show", "fft", "--json", *words).out)
    assert record["schema"] == "hetsched.models.show/2"
    return {model["device"].split(" ")[0]: model for model in record["models"]}


def test_measuring_recovers_the_configured_curves(learnt: Ended, call: Call) -> None:
    assert learnt.code == 0, learnt.err
    models = shown(call)

    assert list(models) == ["core0", "emu0"]
    for device, curves in (("core0", ("compute",)), ("emu0", ("compute", "h2d", "d2h"))):
        for curve in curves:
            knots = models[device]["curves"][curve]["knots"]
            assert [knot["units"] for knot in knots] == list(SIZES)
            for knot in knots:
                expected = configured(device, curve, int(knot["units"]))
                assert knot["seconds"] == pytest.approx(expected, rel=1e-9, abs=0)
                assert knot["low"] == pytest.approx(knot["high"], rel=1e-9, abs=0)
    lines = models["emu0"]["curves"]
    assert lines["h2d"]["gap"] == pytest.approx(10e-6, rel=1e-9)
    assert lines["d2h"]["slope"] == pytest.approx(3e-6, rel=1e-9)


def test_the_report_of_a_measurement(learnt: Ended) -> None:
    (line,) = learnt.out.splitlines()
    record = json.loads(line)

    assert (record["schema"], record["narrow"]) == ("hetsched.models.measure/1", True)
    assert (record["jobs"], record["late"], record["until"]) == (12, 0, 0.025)
    assert [(one["device"], one["units"]) for one in record["measured"]] == [
        (device, units) for device in ("core0", "emu0") for units in SIZES
    ]
    assert list(record["measured"][-1]["curves"]) == ["total", "compute", "h2d", "d2h"]
    assert f"64 units: {DEFAULT_FFT} on core0, emu0: within 0.0 % after 3 repeats" in learnt.err


def test_one_device_can_be_measured_alone_and_halves_of_the_load_are_sizes(call: Call) -> None:
    ended = call(*MEASURE, "--device", "core0", "--until", "0.01", "--most", "1")

    assert ended.code == 0, ended.err
    rows = [line.split()[:3] for line in ended.out.splitlines()[1:7]]
    assert rows == [["core0", DEFAULT_FFT, str(units)] for units in (2, 4, 8, 16, 32, 64)]
    assert "6 of 6 aren't within 1.0 % after 1 repeat" in ended.out
    assert list(shown(call)) == ["core0"]


def test_a_share_that_memory_does_not_hold_is_cut(call: Call) -> None:
    ended = call(*MEASURE, "--sizes", "100", "--devices", "emu0", "--most", "1", "--json")

    record = json.loads(ended.out)
    ((one,), narrow) = record["measured"], record["narrow"]
    assert (list(one["curves"]), one["within"], narrow) == (["total"], None, False)
    assert {k["units"] for k in shown(call)["emu0"]["curves"]["h2d"]["knots"]} == {50.0}


def test_the_list(learnt: Ended, call: Call) -> None:
    whole = call("models")

    assert whole.out == call("models", "list").out == call("models", "fft").out
    heading, title, *rows = whole.out.splitlines()
    assert (heading.split()[0], title) == ("device", "fft 32x32 complex64, 0.0512 Mflop per unit:")
    assert [row.split()[0] for row in rows] == ["core0", "emu0"]
    assert max(map(len, whole.out.splitlines())) <= 80
    assert "did you mean 'core0'" in call("models", "--device", "cor0").error
    record = json.loads(call("models", "--json", "--device", "emu").out)
    assert record["schema"] == "hetsched.models/2"
    ((units, seconds), *_) = record["models"][0]["points"]
    assert (units, seconds) == (1, pytest.approx(sum(
        configured("emu0", curve, 1) for curve in ("compute", "h2d", "d2h")
    )))  # fmt: skip


def test_a_measurement_ends_when_its_time_is_up(call: Call) -> None:
    ended = call(*MEASURE, "--sizes", "1,2", "--within", "1ms")
    record = json.loads(call(*MEASURE, "--sizes", "1,2", "--within", "1ms", "--json").out)

    assert ended.code == 0, ended.err
    assert "note: the time is up; 0 of 4 are within 2.5 %" in ended.out
    assert (record["time_is_up"], record["jobs"]) == (True, 0)


def test_showing_has_a_row_for_every_size(learnt: Ended, call: Call) -> None:
    lines = call("models", "show", "fft", "--device", "core0").out.splitlines()

    assert lines[0] == "fft 32x32 complex64, 0.0512 Mflop per unit"
    assert lines[1].startswith("core0 ")
    assert [line.split()[:2] for line in lines[3:7]] == [["total", str(size)] for size in SIZES]
    assert "per operation" in call("models", "show", "fft").out


def test_showing_ends_with_the_races_of_variants(learnt: Ended, call: Call) -> None:
    store = ModelStore(paths.models_path())
    keys = store.keys()
    (key,) = {key.race_key for key in keys if key.device.startswith("core0")}
    paces = {"mkl 1": (1.0,) * 8, "ducc0 2": (1.5,) * 8, "numpy 3": (1.01,) * 8}
    store.add_race(key, Race(4, 250.0, paces, 1.0))
    store.close()

    lines = call("models", "show", "fft").out.splitlines()
    record = json.loads(call("models", "show", "fft", "--json").out)

    assert "races of variants at about 250 units a core" in lines[-5]
    assert lines[-4] == "  mkl 1: the fastest"
    interval = r"\(\d\.\d\d to \d\.\d\d\) times as long in 1 race, dropped"
    assert re.fullmatch(rf"  numpy 3: 1\.01 {interval}", lines[-3])
    assert re.fullmatch(rf"  ducc0 2: 1\.50 {interval}", lines[-2])
    (raced,) = record["races"]
    assert [rival["variant"] for rival in raced["rivals"]] == ["numpy 3", "ducc0 2"]
    exported = json.loads(call("models", "export", "--device", "core0").out)
    assert len(exported["races"]) == 1


def test_an_export_can_be_imported_elsewhere(
    learnt: Ended, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shown(call)
    assert call("models", "export", "mine.json").code == 0
    monkeypatch.setenv("HETSCHED_STATE_DIR", str(Path("other").absolute()))
    assert call("models").out.startswith("no models yet")

    first = call("models", "import", "mine.json")
    again = json.loads(call("models", "import", "mine.json", "--json").out)

    assert "2 new models" in first.out
    assert (again["new"], again["grown"], again["known"]) == (0, 0, 2)
    assert shown(call) == before


def test_an_export_goes_to_standard_output_or_replaces_no_file(
    learnt: Ended, call: Call, shell: Call
) -> None:
    whole = call("models", "export").out
    Path("there.json").write_text("mine")

    refused = call("models", "export", "there.json")

    assert whole.count("\n") == 1
    assert (refused.code, "--force" in refused.error) == (73, True)
    assert Path("there.json").read_text() == "mine"
    assert call("models", "export", "there.json", "--force", "--device", "core0").code == 0
    assert len(json.loads(Path("there.json").read_text())["models"]) == 1
    assert len(json.loads(whole)["models"]) == 2
    assert shell("models", "export", "-").out == whole


def test_forgetting(learnt: Ended, call: Call) -> None:
    assert call("models", "forget", "fft", "--device", "core0").out == "forgot 1 model\n"
    assert list(shown(call)) == ["emu0"]
    assert call("models", "forget", "--variant", "none").out.startswith("no such models")
    record = json.loads(call("models", "forget", "--all", "--json").out)
    assert [one["workload"] for one in record["forgotten"]] == ["fft"]
    assert call("models").out.startswith("no models yet")


def test_ctrl_c_keeps_what_was_measured(call: Call, tmp_path: Path) -> None:
    Path("slow.toml").write_text(
        "[[device]]\nkind = 'emulated'\nname = 'core0'\ncompute = { unit = '5ms' }\n"
    )
    sizes = ",".join(str(units) for units in range(1, 200))
    words = (*MEASURE[:-1], "slow.toml", "--sizes", sizes, "--most", "1")
    with Place(tmp_path).started(*words, env=os.environ) as process:
        says(process, "2 units")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "are kept" in said.splitlines()[-1]
    knots = shown(call)["core0"]["curves"]["total"]["knots"]
    assert [knot["units"] for knot in knots][:2] == [1, 2]


# ---- what can't be done


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
        samples = [Sample("total", units, 1e-6 * units) for units in (4, 16)]
        store.observe_many([(key, samples)], 1.0)
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


@pytest.fixture
def something() -> None:
    store = ModelStore(paths.models_path())
    key = ModelKey("fft", "x:split:32x32:complex64 1", "pyfftw", "1", "core0 emulated", "memory")
    store.observe_many([(key, [Sample("total", 4, 2.0)])], 1.0)
    store.close()


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
    something: None, call: Call, harm: str, why: str
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
