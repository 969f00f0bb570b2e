"""`hetsched simulate`: tables, JSON and pictures of the papers' experiments; errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hetsched.cli.plots.charts import figure
from hetsched.cli.plots.figure import check, save
from hetsched.errors import CantCreate
from hetsched.simulate.results import Chart, ExperimentResult, Series, Table

from .conftest import Call

PNG = b"\x89PNG\r\n"
SMALL = ("dfpa", "--platforms", "1")
"""An experiment that is quickly done."""


def test_clarkes_table_stands_beside_the_paper(call: Call) -> None:
    ended = call("simulate", "clarke", "--rows", "11000")

    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith("clarke: Clarke, Lastovetsky & Rychkov 2011")
    assert lines[3].startswith("rows   method        near in run  paper")
    assert lines[4].startswith("11000  constant      never        never, 300 MB a run")
    assert lines[5].startswith("11000  geometric     7            9, pages in 8")


def test_rows_may_be_repeated_and_paging_chosen(call: Call) -> None:
    ended = call(
        "simulate", "clarke", "--rows", "4000", "--rows", "8000", "--reserve", "40MiB",
        "--factor", "20", "--width", "0.1", "--linear", "speed", "--json",
    )  # fmt: skip

    table = json.loads(ended.out)["tables"][0]
    assert {row["rows"] for row in table["rows"]} == {4000, 8000}
    assert {row["paper"] for row in table["rows"]} == {None}


def test_ilics_runs_stand_beside_the_paper(call: Call) -> None:
    ended = call("simulate", "ilic", "--json")

    runs, _, gains, *_ = json.loads(ended.out)["tables"]
    assert [row["paper's shares"] for row in runs["rows"]][:2] == ["64 64 64 64", "181 29 23 23"]
    assert [row["paper"] for row in gains["rows"]][:2] == [1.4, 4.6]


@pytest.mark.parametrize(
    "words",
    [("clarke", "--rows", "8000"), SMALL, ("nec", "--nodes", "4")],
    ids=lambda w: w[0],
)
def test_json_is_one_object_with_a_name_for_each_cell(call: Call, words: tuple[str, ...]) -> None:
    ended = call("simulate", *words, "--json")

    (line,) = ended.out.splitlines()
    record = json.loads(line)
    assert (record["schema"], record["experiment"]) == ("hetsched.simulate/1", words[0])
    assert record["source"]
    for table in record["tables"]:
        assert table["title"]
        assert all(isinstance(row, dict) for row in table["rows"])


def test_a_seed_gives_the_same_tables_again(call: Call) -> None:
    one, again, other = (call("simulate", *SMALL, "--seed", seed).out for seed in ("5", "5", "6"))

    assert one == again
    assert one != other


def test_a_picture_is_drawn(call: Call) -> None:
    pytest.importorskip("matplotlib")

    ended = call("simulate", *SMALL, "--plot", "a.png")

    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[-1] == "plot: a.png"
    assert ended.out.startswith("dfpa: ")
    assert Path("a.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(("name", "head"), [("b.SVG", b"<?xml"), ("c.pdf", b"%PDF")])
def test_pictures_have_the_format_of_their_name(name: str, head: bytes) -> None:
    pytest.importorskip("matplotlib")
    chart = Chart("flat", "x", "y", (Series("e", (1, 2), (1, 1)),))

    save(figure(ExperimentResult("none", "nobody", (), (chart,))), name, False)

    assert Path(name).read_bytes().startswith(head)


def test_every_kind_of_chart_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    many = tuple(float(x) for x in range(1, 50))
    charts = (
        Chart(
            "lines",
            "x",
            "y",
            (Series("a", many, many), Series("a measured", (2,), (3,), "points")),
        ),
        Chart("log", "x", "y", (Series("b", (1, 2), (1, 100)),), log=True, y_min=1.0),
        Chart(
            "bars", "x", "y", (Series("c", (1,), (2,), "bars"), Series("d", (1,), (0,), "bars"))
        ),
        Chart("flat", "x", "y", (Series("e", (1, 2), (1, 1)),), y_min=1.0),
    )

    result = ExperimentResult("none", "nobody", (Table("t", ("a",), ()),), charts)
    save(figure(result), "all.png", False)

    assert Path("all.png").read_bytes().startswith(PNG)


def test_an_old_picture_is_only_replaced_by_force(call: Call) -> None:
    pytest.importorskip("matplotlib")
    Path("old.png").write_bytes(b"old")

    refused = call("simulate", *SMALL, "--plot", "old.png")

    assert (refused.code, refused.out) == (73, "")
    assert refused.error == "old.png: exists; give another name, or replace it with --force"
    assert Path("old.png").read_bytes() == b"old"
    assert call("simulate", *SMALL, "--plot", "old.png", "--force").code == 0
    assert Path("old.png").read_bytes().startswith(PNG)


def test_a_picture_without_a_folder_is_refused_before_anything_is_computed(call: Call) -> None:
    pytest.importorskip("matplotlib")

    ended = call("simulate", "clarke", "--sweep", "--plot", "none/x.png")

    assert (ended.code, ended.out) == (73, "")
    assert "there is no folder" in ended.error


def test_a_folder_is_no_picture() -> None:
    pytest.importorskip("matplotlib")
    Path("folder.png").mkdir()

    with pytest.raises(CantCreate, match="is a directory"):
        check("folder.png", True)


def test_without_matplotlib_there_is_one_clear_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    ended = call("simulate", *SMALL, "--plot", "x.png")

    assert (ended.code, ended.out) == (69, "")
    assert ended.error == (
        "--plot needs matplotlib, which isn't installed: pip install 'hetsched[plot]'"
    )
    assert not Path("x.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which experiment? Choose from: clarke, dfpa, nec, ilic"),
        (("clark",), "no experiment 'clark'; did you mean 'clarke'?"),
        (("ilik",), "no experiment 'ilik'; did you mean 'ilic'?"),
        (("clarke", "--row", "3"), "no option --row; did you mean --rows?"),
        (("clarke", "--rows", "3"), "rows: 3 must be 4 to 100000"),
        (("clarke", "--rows", "many"), "--rows: "),
        (("clarke", "--reserve", "1GiB"), "reserve: 1024 MiB"),
        (("clarke", "--reserve", "some"), "'some' is not a size"),
        (("clarke", "--factor", "0"), "factor: 0.0 must be 1 to"),
        (("clarke", "--width", "nan"), "width: nan of the capacity"),
        (("clarke", "--sweep", "--rows", "8000"), "--rows can't be used with --sweep"),
        (("clarke", "--sweep", "--reserve", "44MiB"), "--reserve can't be used with --sweep"),
        (("clarke", "--sweep", "--factor", "75"), "--factor can't be used with --sweep"),
        (("clarke", "--sweep", "--width", "0"), "--width can't be used with --sweep"),
        (("clarke", "--linear", "size"), "--linear: "),
        (("clarke", "--tolerance", "-1"), "tolerance: -1.0"),
        (("dfpa", "--platforms", "0"), "--platforms: "),
        (("dfpa", "--platforms", "2", "--tolerance", "nan"), "tolerance: nan"),
        (("dfpa", "--seed", "-1"), "--seed: "),
        (("nec", "--nodes", "1"), "nodes: 1 must be 2 to 128"),
        (("ilic", "--noise", "1"), "noise: 1.0 must be 0 to 0.3"),
        (("ilic", "--tolerance", "nan"), "tolerance: nan"),
        (("nec", "--plot", "x.gif"), "--plot x.gif: the name must end in one of .png, .svg, .pdf"),
        (("nec", "--plot", ""), "--plot : the name must end in one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_mistakes_get_one_line_and_code_2(call: Call, words: tuple[str, ...], said: str) -> None:
    ended = call("simulate", *words)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.error
