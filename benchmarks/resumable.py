"""Cases that take minutes each: saved one by one, so that a run may stop and go on later."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import results
from benchmarks.results import Result
from benchmarks.warm_cases import Case

Entry = dict[str, Any]
"""What was measured of a case, with its name as `case`."""


def measure_each(
    name: str,
    cases: Sequence[Case],
    measured: Callable[[Case], Entry | None],
    row: Callable[[Entry], Sequence[str]],
    as_result: Callable[[list[Entry]], Result],
    *,
    save: bool,
    until: float,
    resume: bool,
) -> Result:
    """Measure `cases`; return the result with those measured earlier, if it is saved.

    Parameters
    ----------
    measured : callable
        None: the case can't be measured here.
    row, as_result : callable
        The cells of an entry, and the result of all.
    save : bool
        After each case. Otherwise the result has these cases only.
    until : float, seconds on the monotonic clock
        No case is started later.
    resume : bool
        Leave out the cases that this version of hetsched has measured.
    """
    earlier = results.earlier_data(name) if save else []
    entries = {entry["case"]: entry for entry in earlier}
    version = results.version_of_source()
    for case in cases:
        if resume and entries.get(case.name, {}).get("version") == version:
            continue
        if time.monotonic() > until:
            print(f"  no time left for {case.name}", flush=True)
            break
        entry = measured(case)
        if entry is None:
            continue
        entries[case.name] = {**entry, "version": version}
        print(f"  {' | '.join(row(entry))}", flush=True)
        if save:
            results.save(as_result(list(entries.values())))
    return as_result(list(entries.values()))
