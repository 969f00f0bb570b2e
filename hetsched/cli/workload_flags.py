"""A workload's parameters as flags of a command: one for each field of its Params.

Only the workload's declaration is loaded. Values are passed on as text, which the engine parses
(`BaseWorkload.infer`); only unknown choices are rejected here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import msgspec.inspect
import typer

from hetsched import workload as workloads
from hetsched.cli.app import LazyGroup, new_group, single
from hetsched.cli.iteration_flags import iteration_flags
from hetsched.cli.request_flags import JobOptions, ParamValue, job_options
from hetsched.errors import UsageError, encodable
from hetsched.units import closest_hint, quoted
from hetsched.workload import BaseWorkload, Iterative

if TYPE_CHECKING:
    from typer._click import Command, Context

RESERVED = (
    "workload", "arrays", "out", "follow", "schedule",
    "label", "id", "after", "retries", "timeout", "deadline", "hold",
    "balance", "warm_up", "checkpoint", "every", "resume",
)  # fmt: skip
"""Names of `Client.submit`'s own parameters."""

Action = Callable[..., None]
"""action(workload's name, its parameters, JobOptions, **the command's own flags)."""

FlagValue = ParamValue | int | list[str] | None


@dataclass(frozen=True)
class Flag:
    """One field of a Params Struct as a flag."""

    field: str
    help: str
    switch: bool = False
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "--" + self.field.replace("_", "-")

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of a function from which Typer makes this flag."""
        if self.switch:
            switch = typer.Option(f"{self.name}/--no-{self.name[2:]}", help=self.help)
            return _keyword(self.field, Annotated[bool | None, switch])
        metavar = "|".join(self.choices) or self.field.upper()
        option = typer.Option(self.name, help=self.help, metavar=metavar, show_default=False)
        return _keyword(self.field, Annotated[str | None, option])

    def check(self, value: ParamValue) -> None:
        """Raise UsageError for an unknown choice, and for bytes that aren't UTF-8."""
        if isinstance(value, str) and value != encodable(value):
            raise UsageError(f"{self.name}: {quoted(value)} should be text in UTF-8")
        if self.choices and value not in self.choices:
            hint = closest_hint(str(value), self.choices)
            raise UsageError(f"{self.name} {value}: unknown value {value!r}{hint}")


def group(
    name: str,
    action: Action,
    help: str,
    make_options: Callable[..., JobOptions] = job_options,
) -> Command:
    """Make the command `name`, whose subcommands are the workloads; each calls `action`.

    The parameters of `make_options` become the flags that all workloads share.
    """

    class Workloads(LazyGroup):
        noun = "workload"

        def names(self) -> list[str]:
            return workloads.names()

        def get_command(self, ctx: Context, cmd_name: str) -> Command:
            return self.make(cmd_name)

        def make(self, name: str) -> Command:
            return _command(name, workloads.find(name), action, make_options)

    return new_group(help, Workloads, "WORKLOAD [FLAGS]...")


def flags_of(workload: BaseWorkload) -> list[Flag]:
    """Return one flag for each field of `workload.Params`."""
    struct = msgspec.inspect.type_info(workload.Params)
    assert isinstance(struct, msgspec.inspect.StructType)
    return [_flag(field) for field in struct.fields]


def check_without_files(
    workload: BaseWorkload, params: Mapping[str, ParamValue], options: JobOptions
) -> None:
    """Check the parameters before anything is started or sent.

    With input files the parameters also depend on the files' headers, which the engine reads.

    Raises
    ------
    UsageError, DataError
    """
    for array in options.inputs:
        if array and array not in (*workload.inputs, *workload.input_names):
            hint = closest_hint(array, list(workload.input_names))
            raise UsageError(f"--input {array}=: {workload.name} has no such input{hint}")
    if not options.inputs:
        workload.load(workload.infer(params, {}))


def _command(
    name: str, workload: BaseWorkload, action: Action, make_options: Callable[..., JobOptions]
) -> Command:
    flags = {flag.field: flag for flag in flags_of(workload)}
    common = [_with_help(p, workload) for p in _parameters(make_options)]
    has_iterations = isinstance(workload, Iterative) and make_options is job_options
    iterating = _parameters(iteration_flags) if has_iterations else []
    own = _parameters(action)[3:]
    _check_clashes(name, flags, [*common, *iterating, *own])

    def body(**values: FlagValue) -> None:
        params: dict[str, ParamValue] = {}
        for field, flag in flags.items():
            value = values[field]
            if isinstance(value, str | bool):
                flag.check(value)
                params[field] = value
        options = make_options(**{p.name: values[p.name] for p in common})
        if iterating:
            chosen = iteration_flags(**{p.name: cast(Any, values[p.name]) for p in iterating})
            options = replace(options, iterations=chosen)
        check_without_files(workload, params, options)
        action(name, params, options, **{p.name: values[p.name] for p in own})

    parameters = [*(flag.parameter() for flag in flags.values()), *common, *iterating, *own]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body.__annotations__ = {}
    body.__doc__ = inspect.getdoc(workload)
    return single(name, body)


def _with_help(parameter: inspect.Parameter, workload: BaseWorkload) -> inspect.Parameter:
    """Return the parameter, with more formats in its help if inputs are read whole."""
    if parameter.name != "input" or not isinstance(workload, Iterative):
        return parameter
    help = "Input: .npy, Matrix Market, .npz file. [default: generated data]"
    option = typer.Option(metavar="[NAME=]FILE", help=help)
    return parameter.replace(annotation=Annotated[list[str] | None, option])


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    signature = inspect.signature(function, eval_str=True)
    return [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]


def _check_clashes(
    name: str, flags: Mapping[str, Flag], common: Sequence[inspect.Parameter]
) -> None:
    for reserved in [*(parameter.name for parameter in common), *RESERVED]:
        if reserved in flags:
            raise UsageError(
                f"workload {name}: its parameter {reserved!r} clashes with a flag that"
                " every workload has; rename it in its Params"
            )


def _keyword(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _flag(field: msgspec.inspect.Field) -> Flag:
    kind, text = _bare(field.type)
    choices: tuple[str, ...] = ()
    if isinstance(kind, msgspec.inspect.LiteralType):
        choices = tuple(str(value) for value in kind.values)
    default = field.default
    if default is not msgspec.NODEFAULT and default is not None and default != "":
        text = f"{text} [default: {default}]".strip()
    return Flag(
        field=field.name,
        help=text,
        switch=isinstance(kind, msgspec.inspect.BoolType),
        choices=choices,
    )


def _bare(kind: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, str]:
    """Strip Meta and `None` from a type; return it and its description."""
    text = ""
    while isinstance(kind, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
        if isinstance(kind, msgspec.inspect.Metadata):
            text = text or str((kind.extra_json_schema or {}).get("description", ""))
            kind = kind.type
            continue
        rest = [t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType)]
        if len(rest) != 1:
            break
        kind = rest[0]
    return kind, text
