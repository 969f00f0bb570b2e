"""The command line as Typer sees it: groups that import a command only when it is called."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import typer
import typer.core
import typer.main

from hetsched.cli import interrupts, logs
from hetsched.errors import UsageError
from hetsched.units import closest_hint

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter
    from typer._click.exceptions import ClickException

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Jobs": {
        "run": ("run", "Run one job here, without a daemon."),
        "submit": ("run", "Submit one job to the daemon and follow it."),
        "plan": ("run", "Show the plan without running it."),
        "show": ("queue", "Show one job in full."),
        "explain": ("run", "Explain a job's split, its timing and what would help."),
        "result": ("queue", "Save a job's result, or show where it is."),
        "wait": ("queue", "Wait for jobs; exit with the code of the first that failed."),
        "follow": ("queue", "Print each event of jobs, or of all; Ctrl-C ends it."),
    },
    "Queue": {
        "status": ("queue", "List the daemon's jobs."),
        "history": ("queue", "List past jobs, including those of earlier daemons."),
        "top": ("top", "Show devices, queue and running jobs on the whole screen."),
        "cancel": ("queue", "Stop jobs after their current chunks."),
        "hold": ("queue", "Keep waiting jobs from starting."),
        "release": ("queue", "Let held jobs start when their turn comes."),
        "prioritize": ("queue", "Change the priority of waiting jobs."),
        "retry": ("queue", "Submit ended jobs again, as new jobs."),
        "clean": ("queue", "Forget jobs that have ended, and their results in memory."),
    },
    "Daemon": {
        "serve": ("service", "Run the daemon in the foreground."),
        "stop": ("queue", "Stop the daemon; running jobs end after their chunks."),
        "drain": ("queue", "Take no new jobs; finish those that run or wait."),
        "ping": ("queue", "Check that the daemon answers."),
        "devices": ("config", "List the daemon's devices, or those of a configuration."),
        "metrics": ("metrics", "Show counters and gauges for Prometheus."),
        "service": ("service", "Run the daemon as a systemd user service."),
        "config": ("config", "Show, locate or check a configuration."),
        "doctor": ("doctor", "Check everything that jobs need on this machine."),
        "completion": ("config", "Print the script that completes commands in a shell."),
    },
    "Learning": {"models": ("models", "Show, measure and export measured speeds.")},
}
"""Panel of the help -> command -> its module in `commands/`, its help; see `Group.members`."""

COMPLETE = "_HETSCHED_COMPLETE"  # Variable by which a shell's script asks for completions
PARSER_ERROR: type[ClickException] = typer.BadParameter.__bases__[0].__bases__[0]
"""Base class of the parser's errors: Click's, of which some versions of Typer have a copy."""


def call(words: Sequence[str], verbose: bool, debug: bool, log_format: str | None) -> int:
    """Run the command that `words` name and return its exit code.

    Raises UsageError (the words don't parse), HetschedError (the command failed).
    """
    is_daemon = list(words[:1]) == ["serve"]  # which has no other output
    logs.configure(verbose or is_daemon, debug, log_format)
    root = typer.main.get_command(_root)
    if COMPLETE in os.environ:
        from typer._completion_classes import completion_init
        from typer.completion import shell_complete

        completion_init()
        return shell_complete(root, {}, "hetsched", COMPLETE, os.environ[COMPLETE])
    try:
        with root.make_context("hetsched", list(words) or ["--help"]) as context:
            code = root.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except PARSER_ERROR as error:
        raise UsageError(_usage_line(error)) from None
    return code if isinstance(code, int) else 0


def command(
    name: str, function: Callable[..., int | None], help: str = "", **settings: Any
) -> Command:

    @functools.wraps(function)
    def begun(*arguments: Any, **options: Any) -> int | None:
        interrupts.begin()
        return function(*arguments, **options)

    app = _typer()
    app.command(name, help=help, context_settings=settings)(begun)
    return typer.main.get_command(app)


def group(cls: type[Group], metavar: str = "COMMAND [FLAGS]...") -> Command:
    """Make a command with the subcommands that `cls` makes."""
    app = _typer(cls=cls, subcommand_metavar=metavar)
    app.callback()(lambda: None)  # Typer makes a group only where there is a callback
    return typer.main.get_command(app)


def _typer(**options: Any) -> typer.Typer:
    """Make an empty Typer with plain help: no markup, so rich isn't imported."""
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **options
    )


class Group(typer.core.TyperGroup):
    """Subcommands by name, each made when it is needed."""

    noun = "command"  # Name of the subcommands in error messages
    members: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    """Name -> a function, or the module in `commands/` that has a function or a Command of this
    name; help."""

    def names(self) -> list[str]:
        return list(self.members)

    def make(self, name: str) -> Command:
        found, help = self.members[name]
        if isinstance(found, str):
            found = getattr(importlib.import_module(f"hetsched.cli.commands.{found}"), name)
        if not isinstance(found, typer.core.TyperCommand | typer.core.TyperGroup):
            return command(name, found, help)
        found.help = help
        return found

    def summary(self, name: str) -> str:
        return self.members[name][1]

    def panels(self) -> Mapping[str, Mapping[str, str]]:
        """Return heading -> name -> summary, for the help."""
        summaries = {name: self.summary(name) for name in self.names()}
        return {f"{self.noun.rpartition(' ')[2].capitalize()}s": summaries}

    def list_commands(self, ctx: Context) -> list[str]:
        return self.names()

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        return self.make(cmd_name) if cmd_name in self.names() else None

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        width = max(map(len, self.names()))
        for heading, summaries in self.panels().items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in summaries.items()])

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UsageError(f"no {self.noun} {args[0]!r}{closest_hint(args[0], self.names())}")
        return super().resolve_command(ctx, args)


class Commands(Group):
    """All commands of `hetsched`."""

    members = {name: about for panel in COMMANDS.values() for name, about in panel.items()}

    def panels(self) -> Mapping[str, Mapping[str, str]]:
        return {
            panel: {name: help for name, (_, help) in commands.items()}
            for panel, commands in COMMANDS.items()
        }


def _usage_line(error: ClickException) -> str:
    """Reduce a parser error to one line."""
    option, similar = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    if similar:
        match = difflib.get_close_matches(option, similar, n=1, cutoff=0.0)
        return f"no option {option}; did you mean {match[0]}?"
    context: Context | None = getattr(error, "ctx", None)
    group = context.command if context is not None else None
    text = " ".join(error.format_message().split()).rstrip(".")
    is_missing = option or text == "Missing command"
    if is_missing and isinstance(group, Group) and (group.noun != "command" or not option):
        place = f" It comes before {option}." if option else ""
        return f"which {group.noun}?{place} Choose from: {', '.join(group.names())}"
    if type(error) is typer.BadParameter and error.param is not None:
        problem = error.message.rstrip(".").replace("a valid float", "a number")
        problem = problem.replace("a valid int", "an integer")
        name = max(error.param.opts, key=len) if error.param.opts[0][0] == "-" else ""
        return f"{name or error.param.make_metavar(cast(Any, context))}: {problem}"
    source = f" ({context.command_path} --help)" if context is not None else ""
    return f"{text[:1].lower()}{text[1:]}{source}"


_root = _typer(cls=Commands)


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
