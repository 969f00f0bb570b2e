from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.cluster import orders
from hetsched.cluster.coordinator import Added, HostModels, Lost
from hetsched.cluster.fake import FakeGridHosts
from hetsched.cluster.mapping import Grid, Mapping, Tree, quotas
from hetsched.cluster.regions import Held, rectangles, transfers
from hetsched.cluster.stencil import GridJob, StencilCoordinator, StencilOutcome
from hetsched.errors import JobFailed, TryAgain

JOB = GridJob((1000, 800), (False, True), 400)


def held_by(rng: np.random.Generator, hosts: int, shape: tuple[int, int]) -> list[Held]:
    """Give blocks to hosts at random powers, as a coordinator does; some host may have none."""
    grid = Grid((5, 4), corners=True)
    tree = Tree((-1, *[0] * (hosts - 1)))
    mapping = Mapping.shared_out(grid, tree, quotas(tree, len(grid), rng.uniform(0, 1, hosts)))
    return rectangles(mapping.owner, (5, 4), [f"h{i}" for i in range(hosts)], shape)


@given(
    st.integers(0, 1000),
    st.integers(1, 6),
    st.integers(0, 4),
    st.tuples(st.booleans(), st.booleans()),
)
def test_every_cell_and_frame_is_filled_from_who_has_it(
    seed: int, hosts: int, width: int, periodic: tuple[bool, bool]
) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(10, 25)), int(rng.integers(10, 25)))
    whole = rng.random(shape)
    sources, targets = held_by(rng, hosts, shape), held_by(rng, hosts, shape)
    assert sum(box.cells for _, box in targets) == whole.size
    rows, columns = (
        np.arange(-width, size + width) % size if wraps else np.arange(size)
        for size, wraps in zip(shape, periodic, strict=True)
    )
    beyond = whole[np.ix_(rows, columns)]
    offset = [width if wraps else 0 for wraps in periodic]
    for frames, given_ in ((False, sources), (True, targets)):
        got = [np.full(t.box.framed(width, shape, periodic).shape, np.nan) for t in targets]
        for each in transfers(given_, targets, width, shape, periodic, frames=frames):
            framed = targets[each.target].box.framed(width, shape, periodic)
            place = each.there.moved(-framed.top, -framed.left)
            assert each.here.common(given_[each.source].box) == each.here
            got[each.target][place.top : place.bottom, place.left : place.right] = whole[
                each.here.top : each.here.bottom, each.here.left : each.here.right
            ]
        for (_, box), array in zip(targets, got, strict=True):
            framed = box.framed(width, shape, periodic).moved(*offset)
            expected = beyond[framed.top : framed.bottom, framed.left : framed.right].copy()
            if frames:  # its own cells stay as they are
                inner = box.moved(*offset).moved(-framed.top, -framed.left)
                own = (slice(inner.top, inner.bottom), slice(inner.left, inner.right))
                assert np.isnan(array[own]).all()
                array[own] = expected[own]
            np.testing.assert_array_equal(array, expected)


def run(
    hosts: FakeGridHosts, job: GridJob = JOB, models: HostModels | None = None
) -> StencilOutcome:
    return StencilCoordinator(
        hosts, models or HostModels(), "kind", job, 1, "job", every=1.0
    ).run()


def spread(hosts: FakeGridHosts) -> float:
    """Return how much longer the slowest host takes than the mean, in the last sweep."""
    last = hosts.sweeps[-1].values()
    return max(last) * len(last) / sum(last) - 1


@pytest.mark.parametrize("speeds", [(1, 1), (1, 2, 4), (1, 1, 1, 10)])
def test_hosts_take_cells_as_fast_as_they_are(speeds: tuple[int, ...]) -> None:
    hosts = FakeGridHosts({f"h{i}": lambda _, s=s: s * 1e6 for i, s in enumerate(speeds)})
    outcome = run(hosts)
    assert outcome.iteration == JOB.steps
    assert spread(hosts) < 0.1
    assert outcome.again == 0


def test_the_next_job_begins_balanced() -> None:
    models = HostModels()
    for _ in range(2):
        hosts = FakeGridHosts({"slow": lambda _: 1e6, "fast": lambda _: 3e6})
        outcome = run(hosts, models=models)
    first = hosts.cuts[0]
    share = sum(box.cells for host, box in first.targets if host == "fast") / 800_000
    assert share == pytest.approx(0.75, abs=0.03)
    assert outcome.moved <= 3


@pytest.mark.parametrize("factor", [0.5, 0.25])
def test_balanced_again_within_five_sweeps_of_a_change(factor: float) -> None:
    change = 3.0
    powers = {f"h{i}": lambda _: 1e6 for i in range(3)}
    hosts = FakeGridHosts(powers | {"h3": lambda t: 1e6 * (factor if t > change else 1)})
    seen: list[tuple[float, int, float]] = []

    def follow(_: StencilOutcome) -> None:
        seen.append((hosts.now(), len(hosts.cuts), spread(hosts)))

    job = GridJob((1000, 800), (False, False), 400)
    StencilCoordinator(hosts, HostModels(), "kind", job, 1, "job", follow=follow).run()
    sweeps = sorted({(now, cuts) for now, cuts, _ in seen if now > change})
    before = sweeps[0][1]
    until_cut = [cuts for _, cuts in sweeps].index(before + 1)
    assert until_cut <= 5
    assert spread(hosts) < 0.1


def test_one_wild_sweep_moves_nothing() -> None:
    powers = {"a": lambda _: 1e6, "b": lambda t: 1e4 if 3.0 < t < 3.05 else 1e6}
    outcome = run(FakeGridHosts(powers))
    assert outcome.cuts <= 1  # for another width


def test_no_cut_for_a_gain_that_its_frames_would_take() -> None:
    # Two halves are a rectangle each; any other quota makes two of one, with more frames.
    shape = (800, 800)
    powers = {"a": lambda _: 1e7, "b": lambda _: 1.13e7}
    dear, cheap = (
        FakeGridHosts(powers, overhead=overhead, shape=shape) for overhead in (0.2, 0.0002)
    )
    for hosts in (dear, cheap):
        run(hosts, GridJob(shape, (False, False), 2000))
    rectangles = [len(hosts.cuts[-1].targets) for hosts in (dear, cheap)]
    assert rectangles[0] == 2 < rectangles[1]


@settings(max_examples=25)
@given(st.data())
def test_all_steps_are_done_whoever_comes_and_goes(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    powers = {f"h{i}": lambda _, i=i: (1 + i) * 1e6 for i in range(count)}
    times = st.floats(0, 25)
    later = [(data.draw(times), Added("new"))]
    later += [
        (data.draw(times), Lost(f"h{i}", "killed"))
        for i in range(count)
        if data.draw(st.booleans())
    ]
    hosts = FakeGridHosts({**powers, "new": lambda _: 3e6}, later=later)
    outcome = run(hosts)
    assert outcome.iteration == JOB.steps
    for before, cut in zip([None, *hosts.cuts], hosts.cuts, strict=False):
        assert sum(box.cells for _, box in cut.targets) == 800_000
        # Cells come from the inputs, from a checkpoint, or from who held them just before.
        is_live = before is not None and cut.sources == before.targets
        assert is_live or cut.saved or (cut.sources[0].host == "" and cut.iteration == 0)
    assert outcome.again <= sum(bool(work.lost) for work in outcome.work.values()) * JOB.steps


def test_a_loss_repeats_what_came_after_the_checkpoint() -> None:
    powers = {f"h{i}": lambda _: 1e6 for i in range(3)}
    hosts = FakeGridHosts(powers, later=[(40.0, Lost("h1", "killed"))])
    outcome = run(hosts)
    assert outcome.checkpoints > 1
    saved = next(cut for cut in hosts.cuts if cut.saved)
    assert saved.iteration > 0
    assert {host for host, _ in saved.sources} <= {"h0", "h2"}  # of h1 by its copies
    assert outcome.again < JOB.steps / 4
    assert "h1" not in {host for host, _ in hosts.cuts[-1].targets}


def test_a_host_that_comes_gets_its_share() -> None:
    hosts = FakeGridHosts({"a": lambda _: 1e6, "b": lambda _: 1e6}, later=[(20.0, Added("b"))])
    outcome = run(hosts)
    assert outcome.work["b"].blocks == pytest.approx(outcome.work["a"].blocks, abs=3)
    assert outcome.again == 0


def test_what_ends_hosts_fails_the_job() -> None:
    powers = {f"h{i}": lambda _: 1e6 for i in range(9)}
    later = [(1.0 + 0.1 * i, Lost(f"h{i}", "killed")) for i in range(7)]
    hosts = FakeGridHosts(powers, overhead=1.0, later=later)
    with pytest.raises(JobFailed, match="5 times hosts were lost before step 1, the last one h4"):
        run(hosts)


class OneCantBeReached(FakeGridHosts):
    """Every cut with `h1` ends with a host that can't reach it; it comes back each time."""

    def order(self, host: str, order: orders.Order) -> None:
        names = {held.host for held in order.targets} if isinstance(order, orders.Cut) else set()
        if names > {"h1"}:
            cut_off = orders.Unusable(1, order.generation, "h1", "no route to host")
            self._tell(self._time, "h0", cut_off)
        else:
            super().order(host, order)

    def drop(self, host: str, reason: str) -> None:
        super().drop(host, reason)
        self._push(self._time + 2, Added(host))


def test_a_host_that_others_cant_reach_takes_no_part_in_the_end() -> None:
    outcome = run(OneCantBeReached({f"h{i}": lambda _: 1e6 for i in range(2)}))
    assert outcome.iteration == JOB.steps
    assert outcome.work["h1"].sweeps == 0
    assert outcome.warnings == ["h1 takes no part any more: no route to host"]


def test_without_hosts_a_job_ends() -> None:
    hosts = FakeGridHosts({"a": lambda _: 1e6}, later=[(5.0, Lost("a", "killed"))])
    with pytest.raises(TryAgain, match="no host is left \\(a: killed\\) after step"):
        run(hosts)
