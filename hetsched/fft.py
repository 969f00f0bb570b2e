"""The functions of `scipy.fft`, divided over all devices.

``from hetsched import fft`` instead of ``from scipy import fft``: names, arguments, results and
errors are SciPy's. Transforms of float32, float64, complex64 and complex128 arrays are divided
where it pays; everything else is SciPy's own. `stats` says what became of the calls.
"""

from __future__ import annotations

from hetsched.functions.profile import calls
from hetsched.functions.scipys import on_one_core, originals, scipys_own
from hetsched.functions.transforms import NAMES, Library, scipy_function


def stats() -> dict[str, dict[str, int]]:
    """Return for each function how many of its calls were split, and why others weren't."""
    found: dict[str, dict[str, int]] = {}
    for name, what, row in calls.rows():
        if name in originals:
            found.setdefault(name, {})[what] = row.calls
    return found


_library = Library("scipy.fft", on_one_core, scipys_own)
globals().update(originals)
globals().update({name: scipy_function(_library, name, originals[name]) for name in NAMES})
