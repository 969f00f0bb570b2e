from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.cluster.coordinator import (
    LINK,
    PART_BYTES,
    Added,
    Coordinator,
    HostModels,
    Lost,
    Outcome,
)
from hetsched.cluster.fake import FakeHosts
from hetsched.errors import JobFailed, TryAgain


def at(speed: float, fixed: float = 0.0) -> Callable[[int], float]:
    return lambda units: fixed + units / speed


def run(hosts: FakeHosts, models: HostModels, load: int, epoch: int = 1) -> Outcome:
    return Coordinator(hosts, models, "kind", load, epoch).run()


speeds = st.lists(st.floats(1, 100), min_size=1, max_size=6)


@given(speeds, st.integers(1, 500), st.data())
def test_all_units_are_done_whoever_comes_and_goes(
    rates: list[float], load: int, data: st.DataObject
) -> None:
    seconds = {f"h{i}": at(rate, 0.01) for i, rate in enumerate(rates)} | {"new": at(5.0)}
    whole = load / sum(rates)
    times = st.floats(0, 2 * whole)
    stories = [(data.draw(times), Added("new"))]
    stories += [
        (data.draw(times), Lost(f"h{i}", "killed"))
        for i in range(len(rates))
        if data.draw(st.booleans())
    ]
    hosts = FakeHosts(
        seconds, link=lambda units: units * 1e-3, later=stories, late=data.draw(st.booleans())
    )
    outcome = run(hosts, HostModels(), load)

    assert sum(work.units for work in outcome.work.values()) == load
    lost = [host for host, work in outcome.work.items() if work.lost]
    # At most what a lost host had not reported is computed again: never more than its parts.
    sent: dict[str, int] = {}
    for host, share in hosts.sent:
        sent[host] = sent.get(host, 0) + share.count
    assert sum(sent.values()) == load + outcome.again
    assert outcome.again == sum(sent.get(host, 0) - outcome.work[host].units for host in lost)


@pytest.mark.parametrize("slow", [0.5, 0.1])
def test_by_the_second_run_hosts_end_together(slow: float) -> None:
    models = HostModels()
    outcomes = [
        run(FakeHosts({"a": at(100), "b": at(100), "c": at(100 * slow)}), models, 4000, epoch)
        for epoch in range(4)
    ]

    assert outcomes[0].spread < 0.1  # the last parts are small
    for outcome in outcomes[1:]:
        assert outcome.spread < 0.05
        assert outcome.seconds < 1.03 * 4000 / (200 + 100 * slow)
        assert outcome.work["c"].planned == pytest.approx(4000 * slow / (2 + slow), rel=0.1)


def test_a_host_that_becomes_slow_in_mid_run_gets_less() -> None:
    models = HostModels()
    run(FakeHosts({"a": at(100), "b": at(100)}), models, 4000)
    outcome = run(FakeHosts({"a": at(100), "b": at(25)}), models, 4000, 2)

    assert outcome.seconds < 1.15 * 4000 / 125
    assert outcome.spread < 0.1


def test_one_wild_run_doesnt_move_shares_that_two_have_settled() -> None:
    models = HostModels()
    for epoch in range(3):
        run(FakeHosts({"a": at(100), "b": at(100)}), models, 4000, epoch)
    run(FakeHosts({"a": at(100), "b": at(100, 3.0)}), models, 4000, 3)
    outcome = run(FakeHosts({"a": at(100), "b": at(100)}), models, 4000, 4)

    assert outcome.work["b"].planned == pytest.approx(2000, rel=0.1)


def test_models_are_kept_and_stay_small_whatever_sizes_come(tmp_path: Path) -> None:
    path = tmp_path / "state" / "hosts.json"
    models = HostModels(path)
    for load in range(1, 3000, 50):
        run(FakeHosts({"a": at(100), "b": at(50)}), models, load)

    assert all(len(runs) <= 25 for runs in models.runs["kind"].values())
    for i in range(300):
        models.learn(f"kind {i}", "a", 1, 1.0)
    models.save()
    assert len(models.runs) == 200
    assert HostModels(path).runs == models.runs
    path.write_text("{")
    assert HostModels(path).runs == {}


def test_without_a_host_the_job_ends_with_what_is_left_to_do() -> None:
    hosts = FakeHosts({"a": at(10)}, later=[(5.0, Lost("a", "killed"))])
    with pytest.raises(TryAgain, match=r"no host is left \(a: killed\); \d+ of 100 units"):
        run(hosts, HostModels(), 100)
    assert hosts.now() < 60


def test_a_cancelled_job_ends_at_once() -> None:
    hosts = FakeHosts({"a": at(1e-3)})
    outcome = Coordinator(hosts, HostModels(), "kind", 100, 1).run(lambda: hosts.now() > 3)

    assert not outcome.work["a"].units
    assert hosts.now() < 4


def test_a_part_that_ends_one_host_after_another_fails_the_job() -> None:
    names = [f"h{i}" for i in range(9)]
    later = [(float(i), Added(name)) for i, name in enumerate(names)]
    later += [(i + 0.5, Lost(name, "killed")) for i, name in enumerate(names)]
    hosts = FakeHosts(dict.fromkeys(names, at(1e-3)), later=later)
    with pytest.raises(JobFailed, match="5 hosts were lost with units 0 to"):
        run(hosts, HostModels(), 100)
    assert hosts.now() < 9


def test_parts_dont_grow_with_the_load() -> None:
    hosts = FakeHosts({"a": at(100), "b": at(100)})
    Coordinator(hosts, HostModels(), "kind", 5000, 1, unit_bytes=10 << 20).run()
    assert max(share.count for _, share in hosts.sent) == PART_BYTES // (10 << 20)


def test_over_a_slow_link_the_first_part_is_small() -> None:
    models = HostModels()
    models.learn(LINK, "near", 1 << 20, 0.01)
    models.learn(LINK, "far", 1 << 20, 1.0)
    hosts = FakeHosts({"near": at(100), "far": at(100)})
    Coordinator(hosts, models, "kind", 100_000, 1, unit_bytes=1000).run()
    first = {host: share.count for host, share in reversed(hosts.sent)}
    assert first["near"] > 50 * first["far"]
