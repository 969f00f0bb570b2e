"""`hetsched models`: what was learnt about this machine. No daemon needed.

One file a subcommand; alone, or with the name of a workload, the command lists.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import Any

import typer.main

from hetsched.cli.app import LazyGroup, new, single

COMMANDS = {
    "list": "listing",
    "show": "show",
    "measure": "measure",
    "export": "exporting",
    "import": "importing",
    "forget": "forget",
    "diff": "diff",
}
"""Subcommand -> its module in this folder, with a `command`, or a `group` that makes it."""

MISTYPED = 0.7
"""Likeness (difflib's) from which on a word is a mistyped subcommand, and no workload's name."""


class Models(LazyGroup):
    """`list` is what is meant where no subcommand is named."""

    what = "models command"

    def names(self) -> list[str]:
        return list(COMMANDS)

    def make(self, name: str) -> Any:
        module = importlib.import_module(f"hetsched.cli.commands.models.{COMMANDS[name]}")
        return module.group() if hasattr(module, "group") else single(name, module.command)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest: list[str] = super().parse_args(ctx, with_command(args))
        return rest


def with_command(words: Sequence[str]) -> list[str]:
    """`words` with the subcommand that they mean in front."""
    first = words[0] if words else ""
    if first in COMMANDS or first == "--help":
        return list(words)
    if not first.startswith("-") and difflib.get_close_matches(first, COMMANDS, 1, MISTYPED):
        return list(words)
    return ["list", *words]


def group() -> Any:
    app = new(cls=Models, subcommand_metavar="[COMMAND] [FLAGS]...")
    app.callback(help="Show, measure, keep and compare the speeds that were learnt.")(_nothing)
    return typer.main.get_command(app)


def _nothing() -> None:
    """Typer makes a group only where there is a callback."""
