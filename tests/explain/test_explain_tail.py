"""What an explanation says of cores that share a tail, or slow each other down."""

from hetsched.explain.records import Alternative, DeviceExplanation, Explanation
from hetsched.explain.text.run_warnings import run_warnings


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


def test_an_alternative_below_the_lower_bound_is_explained() -> None:
    def lines(seconds: float) -> list[str]:
        explanation = Explanation(
            job=None,
            state="planned",
            workload="w",
            load=9,
            predicted_seconds=2.0,
            fluid_bound=2.0,
            whole_unit_bound=2.0,
            alternatives=(Alternative("only gpu0", seconds),),
        )
        return str(explanation).splitlines()

    assert "  devices slow each other down" in lines(1.9)[-1]
    assert "only gpu0" in lines(2.0)[-1]
