"""`python -m hetsched.simulate`: the papers' experiments beside their figures, and machines."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

import msgspec

from hetsched.errors import HetschedError, UsageError
from hetsched.partition.iterations import TOLERANCE
from hetsched.simulate import cluster, machine_tables
from hetsched.simulate.curves import Linear
from hetsched.simulate.papers import clarke, dethier, dfpa, ilic, nec
from hetsched.simulate.runs import Cell, ExperimentResult
from hetsched.text import clean, clean_json, columns, number
from hetsched.units import NUMBER_LIMIT, parse_size

BALANCED = "relative spread of times that counts as balanced [%(default)s]"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def size(text: str) -> float:
    """Read "44MiB" as 44."""
    try:
        return parse_size(text) / (1 << 20)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run_clarke(flags: argparse.Namespace) -> ExperimentResult:
    paging = {name: getattr(flags, name) for name in ("rows", "reserve", "factor", "width")}
    given = {name: value for name, value in paging.items() if value is not None}
    loads = given.pop("rows", clarke.LOADS)
    like = clarke.ClarkeSetting(loads[0], **given, linear=flags.linear)
    return clarke.run_experiment(loads, like=like, tolerance=flags.tolerance)


EXPERIMENTS: dict[str, tuple[Callable[[argparse.Namespace], ExperimentResult], str]] = {
    "clarke": (run_clarke, "Balance Jacobi on machines with little memory (Clarke 2011)."),
    "dfpa": (
        lambda f: dfpa.run_experiment(f.platforms, seed=f.seed, tolerance=f.tolerance),
        "Partition without prior models (DFPA, Lastovetsky 2010).",
    ),
    "nec": (
        lambda f: nec.run_experiment(f.nodes or nec.NODES, seed=f.seed),
        "Balance by wait times (NEC, US 9,038,088).",
    ),
    "ilic": (
        lambda f: ilic.run_experiment(tolerance=f.tolerance),
        "Balance a GPU and three cores with overlap (Ilic 2012).",
    ),
    "dethier": (
        lambda f: dethier.run_experiment(f.trees, seed=f.seed),
        "Rebalance a stencil over 50 machines (Dethier 2008).",
    ),
    "cluster": (
        lambda f: cluster.run_experiment(f.hosts or cluster.HOSTS, seed=f.seed),
        "Rebalance a stencil over many hosts of random speeds.",
    ),
    "machine": (
        lambda f: machine_tables.run_experiment(f.profile, f.runs, f.noise, seed=f.seed),
        "Plan and simulate any machine.",
    ),
}
FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("clarke", "--rows", {"type": int, "action": "append", "metavar": "N", "help": "repeatable"}),
    ("clarke", "--reserve", {"type": size, "help": "memory not used by the matrix [44MiB]"}),
    ("clarke", "--factor", {"type": float, "help": "slow-down by paging [75]"}),
    ("clarke", "--width", {"type": float, "help": "part of the memory where it sets in [0.05]"}),
    ("clarke", "--linear", {"choices": get_args(Linear), "default": "time",
                            "help": "what changes linearly while it sets in"}),
    ("clarke", "--tolerance", {"type": float, "default": TOLERANCE, "help": BALANCED}),
    ("dfpa", "--platforms", {"type": int, "default": 200, "metavar": "N",
                             "help": "random ones of each kind [%(default)s]"}),
    ("dfpa", "--tolerance", {"type": float, "default": dfpa.TOLERANCE, "help": BALANCED}),
    ("nec", "--nodes", {"type": int, "action": "append", "metavar": "N",
                        "help": "of a random cluster; repeatable [4, 16, 64]"}),
    ("ilic", "--tolerance", {"type": float, "default": ilic.TOLERANCE, "help": BALANCED}),
    ("dethier", "--trees", {"type": int, "default": 30, "metavar": "N",
                            "help": "random spanning trees [%(default)s]"}),
    ("cluster", "--hosts", {"type": int, "action": "append", "metavar": "N",
                            "help": "repeatable, up to 10000 [50, 500, 2000]"}),
    ("machine", "--profile", {"required": True, "metavar": "NAME|FILE",
                              "help": "desktop, h100, or a .toml file"}),
    ("machine", "--runs", {"type": int, "metavar": "N", "help": "learn the models in N runs"}),
    ("machine", "--noise", {"type": float, "help": "of the runs' times [0.02]"}),
)  # fmt: skip


def _parser() -> Parser:
    about = "Repeat the papers' experiments beside their figures, or plan and simulate a machine."
    parser = Parser(prog="python -m hetsched.simulate", description=about)
    names = parser.add_subparsers(metavar="EXPERIMENT", required=True)
    for name, (run, help) in EXPERIMENTS.items():
        experiment = names.add_parser(name, help=help, description=help)
        experiment.set_defaults(run=run)
        for owner, flag, settings in FLAGS:
            if owner == name:
                experiment.add_argument(flag, **settings)
        if name not in ("clarke", "ilic"):  # which draw nothing
            experiment.add_argument("--seed", type=int, default=1, help="of random numbers [1]")
        experiment.add_argument("--json", action="store_true", help="one object on one line")
    return parser


def _lines(result: ExperimentResult) -> list[str]:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = [f"{result.experiment}: {result.source}"]
    for table in result.tables:
        rows = [[_text(cell) for cell in row] for row in table.rows]
        lines += ["", table.title, *columns(table.columns, rows, table.names, width)]
    return list(map(clean, lines))


def _text(cell: Cell) -> str:
    """Format a cell; differences below a ten-thousandth are rounding errors."""
    if isinstance(cell, float):
        return number(round(cell, 4))
    return "-" if cell is None else str(cell)


def _json(result: ExperimentResult) -> str:
    tables = [
        {"title": t.title, "rows": [dict(zip(t.columns, row, strict=True)) for row in t.rows]}
        for t in result.tables
    ]
    about = {"experiment": result.experiment, "source": result.source}
    record = {"schema": "hetsched.simulate/1", **about, "tables": tables}
    return clean_json(msgspec.json.encode(record).decode())


def main(words: Sequence[str] | None = None) -> int:
    try:
        flags = _parser().parse_args(words)
        seed = getattr(flags, "seed", 0)
        if not 0 <= seed < NUMBER_LIMIT:
            raise UsageError(f"--seed {seed}: must be 0 to 2**63-1")
        result = flags.run(flags)
        sys.stdout.write(_json(result) if flags.json else "\n".join(_lines(result)))
        sys.stdout.write("\n")
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at exit
        return 128 + signal.SIGPIPE
    except HetschedError as error:
        sys.stderr.write(f"error: {clean(str(error))}\n")
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
