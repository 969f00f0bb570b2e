from __future__ import annotations

from typing import Any

import pytest


def test_iterative_workloads_have_more_flags(call: Any) -> None:
    words = ("run", "diffusing_workload:Diffusion", "--rows", "9", "--iterations", "5")
    flags = ("--balance", "imbalance-factor", "--warm-up", "dfpa", "--every", "1m")
    assert call(*words, *flags, "--checkpoint", "c.npz").code == 0
    assert call(*words, "--resume", "none.npz").code == 66


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--balance", "functionl"), "--balance: unknown value 'functionl'; did you mean 'functi"),
        (("--warm-up", "x"), "--warm-up: unknown value 'x'; choose from: dfpa"),
        (("--every", "soon"), "--every: 'soon' is not a time"),
        (("--every", "5s"), "--every: there is no checkpoint"),
        (("--checkpoint", ""), "--checkpoint: the file name is missing"),
    ],
)
def test_wrong_values_are_usage_errors(call: Any, words: tuple[str, ...], message: str) -> None:
    ended = call("run", "heat", "--grid", "8x8", *words)
    assert (ended.code, ended.error[: len(message)]) == (2, message)
