"""The first lines of an explanation: the job, its time and its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.explain.text.wording import device_names, signed_percent
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.explain.records import Explanation


def headline_lines(explanation: Explanation) -> list[str]:
    """Return the job, its error if any, its time and its bounds."""
    return [*subject_lines(explanation), _time_line(explanation), *_bound_lines(explanation)]


def subject_lines(explanation: Explanation) -> list[str]:
    """Return the job, and its error if any."""
    params = " ".join(f"{key}={value}" for key, value in explanation.params.items())
    subject = "a plan"
    if explanation.job is not None:
        subject = f"job {explanation.job}, {explanation.state}"
    lines = [f"{subject}: {explanation.workload} {params}".rstrip()]
    if explanation.error:
        lines.append(f"ended early: {explanation.error}")
    return lines


def _time_line(explanation: Explanation) -> str:
    seconds, predicted = explanation.seconds, explanation.predicted_seconds
    units = counted(explanation.load, "unit")
    done = sum(device.share for device in explanation.devices)
    if explanation.job is not None and done < explanation.load:
        units = f"{done} of {units}"
    if seconds is None:
        if predicted is None:
            return f"{units}, no prediction: {_unmeasured(explanation)}"
        return f"{units}, predicted to take {format_seconds(predicted)}"
    if predicted is None:
        unmeasured = _unmeasured(explanation)
        return f"{units} in {format_seconds(seconds)}, no prediction: {unmeasured}"
    error = f", {signed_percent(seconds / predicted - 1)}" if done == explanation.load else ""
    return f"{units} in {format_seconds(seconds)} (predicted {format_seconds(predicted)}{error})"


def _unmeasured(explanation: Explanation) -> str:
    """List the variants without a prediction, and their devices."""
    devices: dict[str, list[str]] = {}
    for device in explanation.devices:
        if device.predicted_seconds is None:
            devices.setdefault(device.variant, []).append(device.device)
    if not devices:
        return "nothing was planned"
    (first, names), *others = devices.items()
    further = "".join(f", nor for {variant} on {device_names(n)}" for variant, n in others)
    return f"no measurements for {first} at this size on {device_names(names)}{further}"


def _bound_lines(explanation: Explanation) -> list[str]:
    whole, fluid = explanation.whole_unit_bound, explanation.fluid_bound
    if whole is None or fluid is None:
        return []
    line = (
        f"lower bound of any split, by the models: {format_seconds(whole)}"
        f" ({format_seconds(fluid)} if units could be divided)"
    )
    gaps = []
    if explanation.predicted_seconds is not None:
        gaps.append(f"the plan is {_gap(explanation.predicted_seconds / whole - 1)} it")
    if explanation.seconds is not None and explanation.state == "done":
        suffix = "" if gaps else " it"
        gaps.append(f"the run was {_gap(explanation.seconds / whole - 1)}{suffix}")
    return [line, ", ".join(gaps)] if gaps else [line]


def _gap(gap: float) -> str:
    return f"{100 * abs(gap):.1f} % {'above' if gap >= 0 else 'below'}"
