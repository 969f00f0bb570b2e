from hypothesis import given
from hypothesis import strategies as st

from hetsched.partition.iterations import received

CUTS = st.lists(st.integers(0, 40), min_size=2, max_size=2).map(sorted)


@given(CUTS, CUTS)
def test_a_device_receives_the_rows_that_it_did_not_have(
    cuts: list[int], new_cuts: list[int]
) -> None:
    before, after = ([first, second - first, 40 - second] for first, second in (cuts, new_cuts))

    def owners(shares: list[int]) -> list[int]:
        return [device for device, share in enumerate(shares) for _ in range(share)]

    changed = [new for old, new in zip(owners(before), owners(after), strict=True) if new != old]

    assert received(before, after) == tuple(changed.count(i) for i in range(len(before)))
