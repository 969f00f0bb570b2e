"""The command line as Typer sees it: groups that import a command only when it is called."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
import typer.core
import typer.main

from hetsched.cli.general_flags import GeneralFlags
from hetsched.cli.output import logs
from hetsched.errors import UsageError
from hetsched.units import closest_hint

if TYPE_CHECKING:
    from typer._click import Command, Context
    from typer._click.exceptions import ClickException

COMMANDS = (
    "run", "submit", "plan", "status", "show", "explain", "wait", "result", "cancel",
    "hold", "release", "prioritize", "retry", "follow", "history", "clean", "drain",
    "devices", "models", "simulate", "doctor", "config", "ping", "serve", "service", "metrics",
    "top",
)  # fmt: skip
"""Each is the module of that name in `commands/`. The module has a function of that name, or a
function `group` that makes the command."""

PARSER_ERROR: type[ClickException] = typer.BadParameter.__bases__[0].__bases__[0]
"""Base class of the parser's errors: Click's, of which some versions of Typer have a copy."""


def call(words: Sequence[str], flags: GeneralFlags) -> int:
    """Run the command that `words` name and return its exit code.

    Raises
    ------
    UsageError
        The words don't parse.
    HetschedError
        The command failed.
    """
    logs.configure(flags)
    command = typer.main.get_command(_root)
    try:
        with command.make_context("hetsched", list(words) or ["--help"]) as context:
            code = command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except PARSER_ERROR as error:
        raise UsageError(_usage_line(error)) from None
    return code if isinstance(code, int) else 0


def new(
    cls: type[typer.core.TyperGroup] | None = None, subcommand_metavar: str | None = None
) -> typer.Typer:
    """Make an empty Typer with plain help: no markup, so rich isn't imported."""
    return typer.Typer(
        cls=cls,
        subcommand_metavar=subcommand_metavar,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def new_group(help: str, cls: type[LazyGroup], subcommand_metavar: str) -> Command:
    """Make a command whose subcommands `cls` loads."""
    app = new(cls, subcommand_metavar)
    app.callback(help=help)(do_nothing)
    return typer.main.get_command(app)


def do_nothing() -> None:
    """Serve as a group's callback: Typer makes a group only where there is one."""


def single(name: str, function: Callable[..., int | None]) -> Command:
    """Make a command of `function`."""
    app = new()
    app.command(name)(function)
    return typer.main.get_command(app)


class LazyGroup(typer.core.TyperGroup):
    """A group that knows the names of its commands and makes each when it is needed."""

    noun = "command"
    """Name of its subcommands in error messages."""

    def names(self) -> list[str]:
        return list(COMMANDS)

    def make(self, name: str) -> Command:
        module = importlib.import_module(f"hetsched.cli.commands.{name}")
        if hasattr(module, "group"):
            command: Command = module.group()
            return command
        return single(name, getattr(module, name))

    def list_commands(self, ctx: Context) -> list[str]:
        return self.names()

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name not in self.names():
            return None
        return self.make(cmd_name)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = closest_hint(args[0], self.names())
            raise UsageError(f"no {self.noun} {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def _usage_line(error: ClickException) -> str:
    """Reduce a parser error to one line."""
    option, similar = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    if similar:
        match = difflib.get_close_matches(option, similar, n=1, cutoff=0.0)
        return f"no option {option}; did you mean {match[0]}?"
    context: Context | None = getattr(error, "ctx", None)
    group = context.command if context is not None else None
    is_missing = option or error.format_message() == "Missing command."
    if is_missing and isinstance(group, LazyGroup) and (group.noun != "command" or not option):
        place = f" It comes before {option}." if option else ""
        return f"which {group.noun}?{place} Choose from: {', '.join(group.names())}"
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text.replace("is not a valid float", "is not a number")
    source = f" ({context.command_path} --help)" if context is not None else ""
    return f"{text[:1].lower()}{text[1:]}{source}"


_root = new(cls=LazyGroup)


@_root.callback()
def _general(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="text, json or journal.")
    ] = None,
) -> None:
    """Run one array job on all CPU cores and the GPU of this machine together."""
