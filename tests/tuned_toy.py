"""A plug-in with a variant that has to be tuned before a job may use it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toys import Toy, ToyParams, make_toy

from hetsched.workload import Kernel, KernelContext, Tuning, Variant


class TunedParams(ToyParams, frozen=True):
    """`folder`: where tuning leaves its process's id in `begun`, and `tuned` at its end.

    `waits`: for a file `go` there. `fails`: it raises. `seconds`: that it is said to take.
    """

    folder: str = ""
    milliseconds: int = 1
    waits: bool = False
    fails: bool = False
    seconds: float = 1e-3


class TunedToy(Toy):
    name = "tuned-toy"
    Params = TunedParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("planned", "1", make, tuning=left), Variant("plain", "1", make)]


def left(p: Any, threads: int, cache: str) -> Tuning:
    is_tuned = (Path(p.folder) / "tuned").exists()
    return Tuning() if is_tuned else Tuning(p.seconds, is_needed=True)


def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
    folder = Path(p.folder)
    if context.tunes:
        context.say("planning toys ...")
        with (folder / "begun").open("a") as file:
            print(os.getpid(), file=file)
        while p.waits and not (folder / "go").exists():
            time.sleep(0.01)
        if p.fails:
            raise RuntimeError("toys can't be planned")
        time.sleep(0.02)
        (folder / "tuned").touch()
    return make_toy(p, chunk, context)
