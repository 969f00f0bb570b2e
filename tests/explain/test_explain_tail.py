"""What an explanation says of cores that share a tail."""

from hetsched.explain.records import DeviceExplanation, Explanation
from hetsched.explain.text import run_warnings


def core(name: str, share: int, taken: int) -> DeviceExplanation:
    return DeviceExplanation(
        device=name, kind="cpu", variant="v", planned=100, share=share, pooled=30, taken=taken
    )


def test_units_taken_from_the_tail_are_no_units_of_other_devices() -> None:
    assert core("cpu0", share=120, taken=50).moved_units == 0
    assert core("cpu0", share=125, taken=50).moved_units == 5


def test_only_stolen_units_are_warned_of() -> None:
    devices = (core("cpu0", share=120, taken=50), core("cpu1", share=80, taken=10))
    text = Explanation(job=1, state="done", workload="w", load=200, devices=devices, seconds=1.0)
    assert run_warnings(text) == []


def test_the_units_of_a_library_call_are_named_once_for_equal_devices() -> None:
    devices = tuple(
        DeviceExplanation(
            device=name, kind="cpu", variant="v", planned=9, chunk_reason="why", units_per_call=4
        )
        for name in ("cpu0", "cpu1")
    )
    text = str(Explanation(job=1, state="done", workload="w", load=18, devices=devices))
    assert "  cpu0, cpu1: calls of the library compute at most 4 units each" in text
