"""An iterative job's progress and closing table. Pure: records in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.cli.output.terminal import columns, number, seconds_column
from hetsched.job import DeviceReport, IterationSeconds, JobReport, Running
from hetsched.text import MAX_GROUP_ROWS, grouped_rows
from hetsched.units import counted, format_seconds

PHASES = ("compute", "transfer", "wait", "converge", "save")


def iteration_progress(state: Running) -> str:
    """Return "iteration 214 of at most 1000, residual 3.2e-05, 87.2/s"; "" before the first."""
    if not state.iteration:
        return ""
    limit = "" if state.max_iterations is None else f" of at most {state.max_iterations}"
    parts = [f"iteration {state.iteration}{limit}"]
    if state.residual is not None:
        parts.append(f"residual {state.residual:.3g}")
    if state.iterations_per_second is not None:
        parts.append(f"{number(state.iterations_per_second)}/s")
    return ", ".join(parts)


def iteration_table(report: JobReport) -> list[str]:
    """Return the table of devices: variant, rows at the end, seconds of each phase in sum."""
    rows = grouped_rows(report.devices, lambda device: device.device, MAX_GROUP_ROWS)
    phases = [phase for phase in PHASES if any(_mean(members, phase) for _, members in rows)]
    cells = [seconds_column([_mean(members, phase) for _, members in rows]) for phase in phases]
    return columns(
        ("device", "variant", "rows", *phases),
        [
            (
                label,
                ", ".join(dict.fromkeys(member.variant for member in members)),
                str(sum(member.share for member in members)),
                *(column[index] for column in cells),
            )
            for index, (label, members) in enumerate(rows)
        ],
        left_columns=2,
    )


def _mean(members: Sequence[DeviceReport], phase: str) -> float:
    total: float = sum(getattr(m.phases or IterationSeconds(), phase) for m in members)
    return total / len(members)


def iteration_headline(report: JobReport) -> str:
    """Return the line with the number of iterations, their time and how they ended."""
    iterations = report.iterations or 0
    parts = [f"{report.workload}: {counted(report.load, 'row')}"]
    done = counted(iterations, "iteration")
    if report.seconds and iterations:
        earlier = report.continued_after or 0
        rate = number((iterations - earlier) / report.seconds)
        done += f", {iterations - earlier} of them now" if earlier else ""
        done += f", kernels' time {format_seconds(report.seconds)} ({rate}/s)"
    parts.append(done)
    if report.converged is not None and iterations:
        parts.append("converged" if report.converged else "not converged")
    if report.residual is not None:
        parts.append(f"residual {report.residual:.3g}")
    if report.moves:
        parts.append(f"rows moved {'once' if report.moves == 1 else f'{report.moves} times'}")
    if report.whole_seconds is not None:
        parts.append(f"whole time {format_seconds(report.whole_seconds)}")
    return "  ".join(parts)
