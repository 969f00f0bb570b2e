"""The Balancer on devices of constant speed: the loop itself, and the ways to end it."""

from collections.abc import Sequence

from hetsched.partition import Balancer


def play(balancer: Balancer, speeds: Sequence[float], most: int = 20) -> int:
    """Runs until the loop ends, on devices of constant speed."""
    for run in range(1, most + 1):
        shares = balancer.ask().shares
        balancer.tell([share / speed for share, speed in zip(shares, speeds, strict=True)])
        if balancer.reason:
            return run
    return most


def test_two_devices_are_balanced_in_two_runs() -> None:
    balancer = Balancer(300, 2)

    assert balancer.ask().shares == (150, 150)
    assert play(balancer, [1, 2]) == 2
    assert balancer.ask().shares == (100, 200)
    assert (balancer.balanced, balancer.reason, balancer.iterations) == (True, "balanced", 2)
