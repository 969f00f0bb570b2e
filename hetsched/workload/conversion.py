"""Conversion of what users write to the parameters of a workload."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from hetsched.errors import UsageError
from hetsched.units import closest_name, quoted

if TYPE_CHECKING:
    from hetsched.workload.protocol import BaseWorkload

TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
}
"""Types of parameters, as error messages call them."""

_first_use = threading.Lock()


def convert(workload: BaseWorkload, values: Mapping[str, Any]) -> Any:
    """Convert `values` to `workload.Params`.

    Raises
    ------
    UsageError
        A field is unknown, missing or has a wrong value.
    """
    fields = workload.Params.__struct_fields__
    for key in values:
        if key not in fields:
            hint = closest_hint(key, fields)
            raise UsageError(f"{workload.name} has no parameter {quoted(key)}{hint}")
    _describe(workload.Params)
    try:
        return msgspec.convert(dict(values), workload.Params, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(_conversion_error(workload, values, str(error))) from None


def decode_params(workload: BaseWorkload, encoded: bytes) -> Any:
    """Return the `workload.Params` that are `encoded` as JSON. Raises msgspec.MsgspecError."""
    _describe(workload.Params)
    return msgspec.json.decode(encoded, type=workload.Params)


@functools.lru_cache(maxsize=256)  # clients choose the workloads
def _describe(params: type[msgspec.Struct]) -> None:
    """Let msgspec describe `params` to itself, on one thread.

    It does so at a type's first use, and publishes the description before it is complete: a second
    thread that converts meanwhile reads null pointers.
    """
    with _first_use:
        msgspec.json.Decoder(params)


def _conversion_error(workload: BaseWorkload, values: Mapping[str, Any], text: str) -> str:
    """msgspec's `text`, in terms of the parameters."""
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    if missing:
        return f"{workload.name} needs {missing[1]}"
    wrong = re.fullmatch(r"Expected `(\w+)`, got `\w+` - at `\$\.(\w+)`", text)
    if wrong:
        kind, name = TYPE_NAMES.get(wrong[1], wrong[1]), wrong[2]
        return f"{name}: {quoted(values[name])} is not {kind}"
    unknown = re.fullmatch(r"Invalid enum value .* - at `\$\.(\w+)`", text, re.DOTALL)
    if unknown:
        name = unknown[1]
        choices = ", ".join(map(str, get_args(get_type_hints(workload.Params)[name])))
        return f"{name}: {quoted(values[name])}, choose from: {choices}"
    return f"{workload.name}: {text}"


def closest_hint(word: str, names: Sequence[str]) -> str:
    match = closest_name(word, names)
    return f"; did you mean {match!r}?" if match else f"; choose from: {', '.join(sorted(names))}"
