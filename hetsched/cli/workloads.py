"""Commands whose subcommands are the workloads: their parameters and the job's options as flags.

The flags of a workload are the fields of its Params, as text, which the engine parses
(`BaseWorkload.infer`); those of all workloads are the fields of a JobSpec.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec.inspect
import typer

from hetsched import job as limits
from hetsched import workload as workloads
from hetsched.cli import flags
from hetsched.cli.app import Group, command, group
from hetsched.errors import UsageError
from hetsched.job import FileOut, FileRef, JobSpec, checked, parse_dependency
from hetsched.paths import FORMAT_NAMES
from hetsched.units import closest_hint, parse_time
from hetsched.workload import INFERRED, BaseWorkload, Iterative

if TYPE_CHECKING:
    from typer._click import Command, Context

RESERVED = ("workload", "arrays", "out", "follow")
"""Names of `Client.submit`'s own parameters that aren't flags of jobs."""


@dataclass(frozen=True)
class Flag:
    """A flag of a workload command. `metavar`: "" for a switch; `read`: None for text."""

    name: str
    metavar: str
    help: str
    read: Callable[[str], Any] | None = None
    is_repeated: bool = False
    other: str = ""  # Another spelling; of a switch the one that turns it off

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of a function from which Typer makes this flag; None: not given."""
        kind: Any = (list[str] if self.is_repeated else str) if self.metavar else bool
        words = [f"--{self.name.replace('_', '-')}", *filter(None, [self.other])]
        if not self.metavar:
            option = typer.Option("/".join(words), help=self.help, show_default=False)
        else:
            option = flags.option(self.metavar, self.help, self.read, *words, shown=False)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, option],
        )


def identity(value: str) -> str:
    if not value:
        raise UsageError("empty; give a name, or omit it")
    return value


JOB_FLAGS = {
    flag.name: flag
    for flag in (
        Flag("input", "[NAME=]FILE", "Input", flags.array_file, is_repeated=True),
        Flag("output", "[NAME=]FILE", f"Save the result: {FORMAT_NAMES}.", flags.new_array_file,
             is_repeated=True),
        Flag("verify", "", "Check every unit."),
        Flag("devices", "A,B", "Devices or groups: cpu, cpu0, gpu, gpu0.",
             flags.words, other="--device"),
        Flag("memory_limit", "SIZE", "Device memory to use, e.g. 256MiB.", flags.memory),
        Flag("seed", "N", "Seed of generated data.", flags.seed),
        Flag("priority", "N", flags.PRIORITY_HELP, flags.priority),
        Flag("schedule", "NAME", f"Chunks of devices with a link: {', '.join(limits.SCHEDULES)}."),
        Flag("label", "TEXT", "Text shown in lists of jobs."),
        Flag("id", "NAME", "Your own name for this submission: repeating it adds no second job.",
             identity),
        Flag("after", "ID[:ok|any|fail]", "Run after that job has succeeded (any: ended, fail: "
             "failed). Repeatable.", is_repeated=True),
        Flag("retries", "N", "Run the job again if it fails, up to N times.",
             flags.integers(0, limits.MAX_RETRIES)),
        Flag("timeout", "TIME", "Fail if it runs longer, e.g. 10m.", parse_time),
        Flag("deadline", "TIME", "Fail unless ended by then: 18:30, 2h, 2026-11-23T06:00.",
             flags.future),
        Flag("hold", "", "Wait until `hetsched release`."),
        Flag("balance", "|".join(limits.BALANCE_METHODS), "How rows are shared out while it runs. "
             "[default: auto]", flags.choice(limits.BALANCE_METHODS)),
        Flag("warm_up", "|".join(limits.WARM_UPS), "Measure all devices before it starts.",
             flags.choice(limits.WARM_UPS)),
        Flag("checkpoint", "FILE", "Save the state here now and then.", flags.path),
        Flag("every", "TIME", "Between two checkpoints. [default: 30s]", parse_time),
        Flag("resume", "FILE", "Continue from this checkpoint.", flags.path),
    )
}  # fmt: skip
"""Field of a JobSpec -> its flag. `input` and `output` become `inputs` and `outputs`."""
ITERATIVE = ("balance", "warm_up", "checkpoint", "every", "resume")
"""Flags that only iterative workloads have."""


Action = Callable[..., None]


def workload_command(
    *names: str,
    refused: str = "",
    more: Mapping[str, Callable[[Action], Command]] | None = None,
) -> Callable[[Action], Command]:
    """Make a command of a function ``action(spec, **its own flags)``.

    `names`: its flags in JOB_FLAGS. `refused`: why it refuses iterative workloads; "": it doesn't.
    `more`: what it has besides workloads -> how it is made.
    """
    others = more or {}

    def made(action: Action) -> Command:
        class Workloads(Group):
            noun = "workload"

            def names(self) -> list[str]:
                return [*workloads.names(), *others]

            def get_command(self, ctx: Context, cmd_name: str) -> Command:
                return self.make(cmd_name)  # also module:Class

            def summary(self, name: str) -> str:
                try:
                    return self.make(name).get_short_help_str(80)
                except UsageError as error:  # of one plug-in
                    return f"{error}."

            def make(self, name: str) -> Command:
                if name in others:
                    return others[name](action)
                return _of_workload(name, workloads.find(name), action, names, refused)

        return group(Workloads, "WORKLOAD [FLAGS]...")

    return made


def _of_workload(
    name: str, workload: BaseWorkload, action: Action, names: Sequence[str], refused: str
) -> Command:
    is_iterative = isinstance(workload, Iterative)
    params = {flag.name: flag for flag in params_flags(workload)}
    options = [JOB_FLAGS[each] for each in names if each not in ITERATIVE or is_iterative]
    own = _own_parameters(action)
    for reserved in (*JOB_FLAGS, *(p.name for p in own), *RESERVED):
        if reserved in params:
            raise UsageError(
                f"workload {name}: its parameter {reserved!r} clashes with a flag that"
                " every workload has; rename it in its Params"
            )
    options = [replace(o, help=_help(workload)) if o.name == "input" else o for o in options]

    def spec(given: dict[str, Any], force: bool) -> JobSpec:
        if is_iterative and refused:
            raise UsageError(f"{name} is iterative: {refused}")
        chosen = {key: given[key] for key in params if key in given}
        fields = {flag.name: given[flag.name] for flag in options if flag.name in given}
        spec = job_spec(name, chosen, fields, force)
        for array in spec.inputs:
            if array and array not in (*workload.inputs, *workload.input_names):
                hint = closest_hint(array, workload.input_names)
                raise UsageError(f"--input {array}=: {name} has no such input{hint}")
        if not spec.inputs:  # with files parameters depend on their headers, too: the engine's
            workload.load(workload.infer(spec.params, {}))
        return spec

    help = inspect.getdoc(workload) or ""
    return flags_command(name, help, [*params.values(), *options], spec, action)


def flags_command(
    name: str,
    help: str,
    options: Sequence[Flag],
    request: Callable[[dict[str, Any], bool], Any] | None,
    action: Action,
) -> Command:
    """Make a command of ``action(request(values given, --force), **its own flags)``.

    `request` None: the action takes the values themselves.
    """
    own = _own_parameters(action)

    def body(**values: Any) -> None:
        given = {o.name: values[o.name] for o in options if values[o.name] is not None}
        about = given if request is None else request(given, values.get("force", False))
        action(about, **{p.name: values[p.name] for p in own})

    parameters = [flag.parameter() for flag in options]
    body.__signature__ = inspect.Signature([*parameters, *own])  # type: ignore[attr-defined]
    body.__annotations__ = {}
    return command(name, body, help)


def job_spec(
    workload: str, params: Mapping[str, Any], options: Mapping[str, Any], force: bool = False
) -> JobSpec:
    """Make the request of the values of JOB_FLAGS that were given. Raises UsageError."""
    fields = {"workload": workload, "params": dict(params), **options}
    after = fields.pop("after", ())
    inputs = flags.by_array("--input", fields.pop("input", None))
    outputs = flags.by_array("--output", fields.pop("output", None))
    try:
        return checked(
            JobSpec,
            inputs={name: FileRef(path) for name, path in inputs.items()},
            outputs={name: FileOut(path, force) for name, path in outputs.items()},
            after=tuple(map(parse_dependency, after)),
            **fields,
        )
    except UsageError as error:
        name, _, problem = str(error).partition(":")
        raise UsageError(f"--{name.replace('_', '-')}:{problem}") from None


def params_flags(workload: BaseWorkload) -> list[Flag]:
    """Return a flag for each field of `workload.Params` that isn't always inferred."""
    struct = msgspec.inspect.type_info(workload.Params)
    assert isinstance(struct, msgspec.inspect.StructType)
    found = []
    for field in struct.fields:
        kind, help = _bare(field.type)
        if field.default is not msgspec.NODEFAULT and field.default not in (None, ""):
            help = f"{help} [default: {field.default}]".strip()
        flag = Flag(field.name, field.name.upper(), help, flags.text)
        if isinstance(kind, msgspec.inspect.BoolType):
            flag = replace(flag, metavar="", other=f"--no-{field.name.replace('_', '-')}")
        elif isinstance(kind, msgspec.inspect.LiteralType):
            names = [str(value) for value in kind.values]
            flag = replace(flag, metavar="|".join(names), read=flags.choice(names))
        if getattr(field.type, "extra", None) != INFERRED:
            found.append(flag)
    return found


def _bare(kind: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, str]:
    """Strip Meta and `None` from a type; return it and its description."""
    if isinstance(kind, msgspec.inspect.Metadata):
        bare, text = _bare(kind.type)
        return bare, str((kind.extra_json_schema or {}).get("description", "")) or text
    if isinstance(kind, msgspec.inspect.UnionType):
        rest = [t for t in kind.types if not isinstance(t, msgspec.inspect.NoneType)]
        return _bare(rest[0]) if len(rest) == 1 else (kind, "")
    return kind, ""


def _help(workload: BaseWorkload) -> str:
    """Name the inputs, and the formats of files: those of iterative jobs are read whole."""
    names = workload.input_names
    arrays = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else ", ".join(names)
    formats = ".npy, .zarr, .h5:dataset, .tif or FILE:DTYPE:SHAPE[:OFFSET]"
    if isinstance(workload, Iterative):
        formats = f"Matrix Market, .npz, {formats}"
    return f"Input {arrays}: {formats}. [default: generated data]"


def _own_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    signature = inspect.signature(function, eval_str=True)
    _, *own = signature.parameters.values()
    return [p.replace(kind=p.KEYWORD_ONLY) for p in own]
