"""The command line as Typer sees it: a group whose commands are imported when they are called."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from hetsched.cli.output import logs
from hetsched.errors import UsageError

COMMANDS = (
    "run", "submit", "plan", "status", "show", "explain", "wait", "result", "cancel",
    "devices", "models", "simulate", "doctor", "config", "ping", "serve",
)  # fmt: skip
"""Each is the module of that name in this folder, with a function of that name, or with a `group`
that makes the command."""

ClickError: Any = typer.BadParameter.__bases__[0].__bases__[0]
"""Base of what Typer's parser raises: Click's, which is Typer's own copy in some versions."""


def call(words: Sequence[str], verbose: bool, debug: bool) -> int:
    """Run the command that `words` name; its exit code.

    Raises
    ------
    UsageError
        And whatever the command raises.
    """
    logs.configure(verbose, debug)
    command: Any = typer.main.get_command(_root)
    try:
        with command.make_context("hetsched", list(words) or ["--help"]) as context:
            code = command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except ClickError as error:
        raise UsageError(_usage_line(error)) from None
    return code if isinstance(code, int) else 0


def new(**settings: Any) -> typer.Typer:
    """An empty Typer: plain help (no markup, so no rich and nothing that brackets could break)."""
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings
    )


def single(name: str, function: Callable[..., int | None]) -> Any:
    """`function` as a command."""
    app = new()
    app.command(name)(function)
    return typer.main.get_command(app)


def nearest(word: str, known: Sequence[str]) -> str:
    """ "; did you mean 'status'?", or all there are."""
    match = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else f"; there are {', '.join(known)}"


class LazyGroup(typer.core.TyperGroup):
    """A group that knows the names of its commands, and makes a command when it is needed."""

    what = "command"

    def names(self) -> list[str]:
        return list(COMMANDS)

    def make(self, name: str) -> Any:
        module = importlib.import_module(f"hetsched.cli.commands.{name}")
        if hasattr(module, "group"):
            return module.group()
        return single(name, getattr(module, name))

    def list_commands(self, ctx: Any) -> list[str]:
        return self.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.names():
            return None
        return self.make(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = nearest(args[0], self.names())
            raise UsageError(f"no {self.what} {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def _usage_line(error: Any) -> str:
    """One line of what Click says in several."""
    option, possible = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    if possible:
        match = difflib.get_close_matches(option, possible, n=1, cutoff=0.0)
        return f"no option {option}; did you mean {match[0]}?"
    if error.format_message() == "Missing command." and isinstance(error.ctx.command, LazyGroup):
        group = error.ctx.command
        return f"which {group.what}? There are {', '.join(group.names())}"
    text = " ".join(str(error.format_message()).split()).rstrip(".")
    text = re.sub("not a valid (integer|int range)", "not a whole number", text)
    context = getattr(error, "ctx", None)
    where = f" ({context.command_path} --help)" if context is not None else ""
    return f"{text[:1].lower()}{text[1:]}{where}"


_root = new(cls=LazyGroup)


@_root.callback()
def _general(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Make all cores and the GPU of this machine work on one array job together."""
