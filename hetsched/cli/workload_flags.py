"""A workload's parameters as flags of a command: one for each field of its Params.

Only the declaration is loaded; values travel as text and the engine's side makes sense of them
(`Workload.infer`), except for what can be said at once: an unknown choice, with the nearest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import msgspec.inspect
import typer

from hetsched import workload as workloads
from hetsched.cli.app import LazyGroup, nearest, new, single
from hetsched.cli.request_flags import Request, gather
from hetsched.errors import UsageError
from hetsched.workload import Workload

RESERVED = ("workload", "arrays", "out", "follow")
"""Names that `submit` itself has, in Python."""

Act = Callable[..., None]
"""act(workload's name, given parameters, Request, **flags of its own)."""


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
        if self.switch:
            option = typer.Option(f"{self.name}/--no-{self.name[2:]}", help=self.help)
            annotation: Any = Annotated[bool | None, option]
        else:
            shown = "|".join(self.choices) or self.field.upper()
            option = typer.Option(self.name, help=self.help, metavar=shown, show_default=False)
            annotation = Annotated[str | None, option]
        return _keyword(self.field, annotation)

    def check(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            hint = nearest(value, self.choices)
            raise UsageError(f"{self.name} {value}: there is no {value!r}{hint}")


def group(name: str, act: Act, help: str, gather: Callable[..., Request] = gather) -> Any:
    """The command `name`, whose subcommands are the workloads; each calls `act`.

    `gather` has the flags that all workloads share, and makes a Request of them.
    """

    class Workloads(LazyGroup):
        what = "workload"

        def names(self) -> list[str]:
            return workloads.names()

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return self.make(cmd_name)

        def make(self, name: str) -> Any:
            return _command(name, workloads.find(name), act, gather)

    app = new(cls=Workloads, subcommand_metavar="WORKLOAD [FLAGS]...")
    app.callback(help=help)(_nothing)
    return typer.main.get_command(app)


def flags_of(workload: Workload) -> list[Flag]:
    """The flags that the fields of `workload.Params` become."""
    described: Any = msgspec.inspect.type_info(workload.Params)
    return [_flag(field) for field in described.fields]


def _nothing() -> None:
    """Typer makes a group only where there is a callback."""


def _command(name: str, workload: Workload, act: Act, gather: Callable[..., Request]) -> Any:
    flags = {flag.field: flag for flag in flags_of(workload)}
    common = _parameters(gather)
    own = _parameters(act)[3:]
    _check_clashes(name, flags, [*common, *own])

    def body(**values: Any) -> None:
        given = {f: values[f] for f in flags if values[f] is not None}
        for field, value in given.items():
            flags[field].check(value)
        request = gather(**{p.name: values[p.name] for p in common})
        check_alone(workload, given, request)
        act(name, given, request, **{p.name: values[p.name] for p in own})

    parameters = [*(flag.parameter() for flag in flags.values()), *common, *own]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body.__annotations__ = {}
    body.__doc__ = inspect.getdoc(workload)
    return single(name, body)


def check_alone(workload: Workload, given: Mapping[str, Any], request: Request) -> None:
    """Say what is wrong with the parameters before anything is started or asked.

    With input files their headers count too; whoever runs the job reads these.

    Raises
    ------
    UsageError, DataError
    """
    for array in request.inputs:
        if array and array not in workload.inputs:
            hint = nearest(array, list(workload.inputs))
            raise UsageError(f"--input {array}=: {workload.name} has no such input{hint}")
    if not request.inputs:
        workload.load(workload.infer(given, {}))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    signature = inspect.signature(function, eval_str=True)
    return [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]


def _check_clashes(
    name: str, flags: Mapping[str, Flag], taken: Sequence[inspect.Parameter]
) -> None:
    for word in [*(parameter.name for parameter in taken), *RESERVED]:
        if word in flags:
            raise UsageError(
                f"workload {name}: its parameter {word!r} has the name of a flag that"
                " every workload has; rename it in its Params"
            )


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _flag(field: Any) -> Flag:
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


def _bare(kind: Any) -> tuple[Any, str]:
    """`kind` without its Meta and without `None` among its types; and its description."""
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
