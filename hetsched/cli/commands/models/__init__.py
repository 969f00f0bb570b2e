"""`hetsched models`: the measured speed functions of this machine. No daemon needed.

One file per subcommand. Without a subcommand, or with the name of a workload, the command lists.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetsched.cli.app import LazyGroup, new_group, single

if TYPE_CHECKING:
    from typer._click import Command, Context

COMMANDS = {
    "list": "listing",
    "show": "show",
    "measure": "measure",
    "export": "exporting",
    "import": "importing",
    "forget": "forget",
}
"""Subcommand -> its module in this folder, with a `command`, or a `group` that makes it."""

MIN_SIMILARITY = 0.7
"""Similarity (difflib's) above which a word is a mistyped subcommand rather than a workload."""


class ModelCommands(LazyGroup):
    """The subcommands; `list` is the default."""

    noun = "models command"

    def names(self) -> list[str]:
        return list(COMMANDS)

    def make(self, name: str) -> Command:
        module = importlib.import_module(f"hetsched.cli.commands.models.{COMMANDS[name]}")
        if hasattr(module, "group"):
            command: Command = module.group()
            return command
        return single(name, module.command)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_subcommand(args))


def with_subcommand(words: Sequence[str]) -> list[str]:
    """Insert `list` before `words` unless they name a subcommand."""
    first = words[0] if words else ""
    if first in COMMANDS or first == "--help":
        return list(words)
    if not first.startswith("-") and difflib.get_close_matches(first, COMMANDS, 1, MIN_SIMILARITY):
        return list(words)
    return ["list", *words]


def group() -> Command:
    help = "Show, measure and export measured speeds."
    return new_group(help, ModelCommands, "[COMMAND] [FLAGS]...")
