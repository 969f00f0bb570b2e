"""The whole loop under noise: it keeps a good split, and follows real changes."""

import statistics

import pytest
from noisy_loop import Loop

SEEDS = range(8)
RUNS = 200


def losses_and_changes(loop: Loop) -> tuple[float, float]:
    """Mean loss against the best fixed split; changes of the split a run, after the tenth."""
    seconds, changes = [], 0
    for number in range(RUNS):
        before = loop.shares
        seconds.append(loop.run()[0])
        changes += number >= 10 and loop.shares != before
    return statistics.fmean(seconds) / loop.best - 1, changes / (RUNS - 10)


def test_noise_costs_little_and_rarely_changes_the_split() -> None:
    results = [losses_and_changes(Loop(seed)) for seed in SEEDS]
    assert statistics.fmean(loss for loss, _ in results) <= 0.03
    assert max(changes for _, changes in results) <= 0.05


@pytest.mark.parametrize("pace", [2.0, 0.5])
def test_a_device_that_changes_is_rebalanced_within_four_runs(pace: float) -> None:
    spreads = []
    for seed in SEEDS:
        loop = Loop(seed)
        for _ in range(30):
            loop.run()
        loop.pace[seed % 4] = pace
        spreads.append([loop.run()[1] for _ in range(6)])
    assert statistics.median(spread[3] for spread in spreads) < 0.1
    assert statistics.median(spread[5] for spread in spreads) < 0.1


@pytest.mark.parametrize("pace", [2.0, 0.5, 1.4])
@pytest.mark.parametrize("seed", range(4))
def test_without_noise_every_change_is_rebalanced_within_four_runs(seed: int, pace: float) -> None:
    loop = Loop(seed, noise=0.0, hiccups=0.0)
    for _ in range(10):
        loop.run()
    loop.pace[seed] = pace
    assert [loop.run()[1] for _ in range(5)][3] < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_an_outlier_moves_no_share_by_two_percent(seed: int) -> None:
    wild, usual = (Loop(seed, noise=0.01, hiccups=0.0) for _ in range(2))
    for number in range(16):
        wild.pace[seed] = 20.0 if number == 10 else 1.0
        wild.run()
        usual.run()
        for share, expected in zip(wild.shares, usual.shares, strict=True):
            assert abs(share / expected - 1) <= 0.02
