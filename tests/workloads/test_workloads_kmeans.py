from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hetsched_workloads.kmeans import KMeans, KMeansParams
from hetsched_workloads.kmeans.kernels import exponential, largest_distance, stream_key
from hypothesis import assume, given
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.iterations.serial import SerialResult, run
from hetsched.workload import Rows

WORKLOAD = KMeans()
VARIANTS = [variant.name for variant in WORKLOAD.variants("cpu")]


def points(p: KMeansParams, seed: int = 0) -> np.ndarray:
    out = np.empty((p.count, p.dimensions), p.dtype)
    WORKLOAD.generate(p, seed, "points", 0, out)
    return out


def solve(
    p: KMeansParams, x: np.ndarray, *split: int, start: Any = None, variant: str = "numpy"
) -> SerialResult:
    inputs = {"points": x} if start is None else {"points": x, "start": start}
    return run(WORKLOAD, p, inputs, split or (p.count,), variant=variant)


def worst(p: KMeansParams, x: np.ndarray, result: SerialResult) -> float:
    rows = Rows(0, p.count, p.count)
    return float(WORKLOAD.errors(p, {"points": x}, result.outputs, rows, 0).max())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("split", [(300, 300), (1, 599, 0), (0, 250, 1, 349)])
def test_neither_split_nor_variant_changes_the_clusters(
    dtype: str, split: tuple[int, ...], variant: str
) -> None:
    p = KMeansParams(600, 5, 7, start_seed=2, dtype=dtype)
    x = points(p)

    whole, parts = solve(p, x), solve(p, x, *split, variant=variant)

    assert parts.iterations == whole.iterations
    assert np.array_equal(parts.outputs["labels"], whole.outputs["labels"])
    limit = 16 * np.finfo(dtype).eps * np.abs(centroids := whole.outputs["centroids"]).max()
    np.testing.assert_allclose(parts.outputs["centroids"], centroids, rtol=0, atol=limit)
    assert worst(p, x, parts) <= 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_digits_are_clustered_as_by_scikit_learn(dtype: str, variant: str) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    x = pytest.importorskip("sklearn.datasets").load_digits().data.astype(dtype)
    start = x[:10].astype(np.float64)
    p = KMeansParams(len(x), 64, 10, tolerance=0.0, start="given", dtype=dtype)

    result = solve(p, x, 800, 997, start=start, variant=variant)

    theirs = cluster.KMeans(10, init=start.astype(dtype), n_init=1, tol=0).fit(x)
    assert abs(result.iterations - theirs.n_iter_) <= 1
    assert np.count_nonzero(result.outputs["labels"] != theirs.labels_) <= 2  # nearly ties
    assert result.outputs["inertia"][0] == pytest.approx(theirs.inertia_, rel=1e-6)


def test_colours_of_a_photograph_are_quantised_as_well_as_by_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    photograph = pytest.importorskip("skimage.data").astronaut()[::4, ::4]
    x = photograph.reshape(-1, 3) / np.float32(255)
    p = KMeansParams(len(x), 3, 16, start_seed=1)

    result = solve(p, x, 5000, len(x) - 5000)

    start = x[np.random.default_rng(0).choice(len(x), 16, replace=False)]
    theirs = cluster.KMeans(16, init=start, n_init=1).fit(x)
    assert worst(p, x, result) <= 1
    assert result.outputs["inertia"][0] < 1.15 * theirs.inertia_


def test_points_far_from_the_origin_are_clustered_as_near_it() -> None:
    p = KMeansParams(400, 3, 4, start_seed=5)
    near = np.round(points(p) * 16).astype(np.float32)

    far = solve(p, near + np.float32(1 << 20), 150, 250)

    assert np.array_equal(far.outputs["labels"], solve(p, near).outputs["labels"])


def test_a_cluster_without_points_gets_the_farthest_point() -> None:
    x = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [50.0]])
    start = np.array([[1.0], [10.0], [1000.0]])
    p = KMeansParams(6, 1, 3, start="given", dtype="float64")

    result = solve(p, x, 2, 4, start=start)

    assert result.outputs["labels"].tolist() == [0, 0, 0, 1, 1, 2]
    np.testing.assert_allclose(result.outputs["centroids"], [[1], [10.5], [50]])


def test_fewer_different_points_than_clusters_are_no_error() -> None:
    x = np.repeat([[1.0, 2.0], [3.0, 4.0]], 5, axis=0)
    p = KMeansParams(10, 2, 4, dtype="float64")

    result = solve(p, x, 4, 6)

    assert result.converged
    assert result.outputs["inertia"][0] == 0


def test_the_race_draws_points_in_proportion_to_their_weight() -> None:
    weights = np.array([1.0, 2.0, 5.0])

    drawn = Counter(
        int((exponential(np, stream_key(seed, 1), 0, 3) / weights).argmin())
        for seed in range(4000)
    )

    shares = [drawn[point] / 4000 for point in range(3)]
    np.testing.assert_allclose(shares, weights / 8, atol=0.03)


def textbook(x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Lloyd's iteration until no label changes: labels, centroids, iterations."""
    labels, centroids, count = np.full(len(x), -1), start, 0
    while True:
        squares = np.square(x[:, np.newaxis] - centroids).sum(axis=2)
        before, labels, count = labels, squares.argmin(axis=1), count + 1
        if np.array_equal(labels, before):
            return labels, centroids, count
        clusters = range(len(start))
        assume(all((labels == cluster).any() for cluster in clusters))
        centroids = np.array([x[labels == cluster].mean(axis=0) for cluster in clusters])


@given(
    seed=st.integers(0, 2**32),
    dimensions=st.integers(1, 5),
    count=st.integers(2, 60),
    clusters=st.integers(1, 6),
    dtype=st.sampled_from(("float32", "float64")),
    cut=st.floats(0, 1),
)
def test_iterations_are_those_of_the_textbook_for_any_split(
    seed: int, dimensions: int, count: int, clusters: int, dtype: str, cut: float
) -> None:
    assume(clusters <= count)
    x = np.random.default_rng(seed).random((count, dimensions)).astype(dtype)
    start, first = x[:clusters].astype(np.float64), round(cut * count)
    p = KMeansParams(count, dimensions, clusters, tolerance=0.0, start="given", dtype=dtype)
    labels, centroids, iterations = textbook(x.astype(np.float64), start)

    result = solve(p, x, first, count - first, start=start)

    assert abs(result.iterations - iterations) <= 1
    assert np.array_equal(result.outputs["labels"], labels)
    atol = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(result.outputs["centroids"], centroids, rtol=0, atol=atol)


def test_a_wrong_label_and_a_wrong_inertia_are_noticed() -> None:
    p = KMeansParams(200, 4, 5, dtype="float32")
    x = points(p)
    result = solve(p, x)
    wrong = dict(result.outputs, labels=(result.outputs["labels"] + 1) % 5)
    heavy = dict(result.outputs, inertia=result.outputs["inertia"] * 1.001)
    rows = Rows(50, 150, 200)

    assert (WORKLOAD.errors(p, {"points": x}, wrong, rows, 0) > 1).all()
    assert (WORKLOAD.errors(p, {"points": x}, heavy, rows, 0) > 1).all()
    assert (WORKLOAD.errors(p, {"points": x}, result.outputs, rows, 0) <= 1).all()


def test_points_that_are_not_finite_are_named() -> None:
    p = KMeansParams(100, 2, 3)
    x = points(p)
    x[57, 1] = np.inf

    with pytest.raises(DataError, match="row 57"):
        solve(p, x, 40, 60)


def test_points_whose_distances_overflow_are_refused() -> None:
    p = KMeansParams(10, 2, 3)

    x = points(p) * np.float32(1e25)

    with pytest.raises(DataError, match="overflow float32"):
        solve(p, x)
    with pytest.raises(DataError, match="overflow float32"):
        solve(msgspec.structs.replace(p, start="given"), x, start=x[:3])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("start", ["k-means++", "given"])
def test_points_whose_squared_distances_underflow_are_refused(start: str, variant: str) -> None:
    x = points(KMeansParams(100, 3, 4)) * np.float32(1e-25)
    x[:60] = 0  # the device of these rows can't tell
    p = KMeansParams(100, 3, 4, start=start)

    with pytest.raises(DataError, match="underflow float32; scale the points"):
        solve(p, x, 50, 50, start=x[-4:] if start == "given" else None, variant=variant)
    wide = solve(msgspec.structs.replace(p, dtype="float64", start="k-means++"), x.astype(float))
    assert len(set(wide.outputs["labels"])) == 4


def test_the_largest_allowed_distances_do_not_overflow() -> None:
    p = KMeansParams(600, 5, 3, start_seed=2)
    x = points(p)
    diameter = np.linalg.norm(np.ptp(x, axis=0).astype(np.float64))
    exponent = np.floor(np.log2(np.sqrt(largest_distance(p)) / diameter))

    small, large = solve(p, x), solve(p, x * np.float32(2.0**exponent))

    assert np.array_equal(large.outputs["labels"], small.outputs["labels"])
