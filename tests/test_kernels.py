"""The native kernels do what the pure-JAX path does, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
from bayestream.gaussians import diagonal, kernels, lazy_dlr
from bayestream.gaussians.diagonal import DiagonalGaussian
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.lazy_dlr import LazyDLR, Pending
from bayestream.gaussians.spherical import SphericalGaussian
from bayestream.networks import native, rows
from bayestream.networks.convolutions import pull_back
from bayestream.networks.products import products
from bayestream.networks.rows import Rows

pytestmark = pytest.mark.skipif(not kernels.built(), reason="the native kernels were not built")

# (rank, examples, outputs, layers): structured, short, plain, mixed; one tile and many.
CASES = {
    "tiny": (3, 1, 2, [(4, 5), (6, 2)]),
    "rank zero": (0, 1, 3, [(4, 30), (31, 3)]),
    "uci": (10, 1, 1, [(9, 50), (51, 1)]),
    "batch": (5, 3, 2, [(7, 33), (34, 2)]),
    "plain": (7, 1, 2, [(1, 700)]),
    "plain batch": (7, 2, 2, [(1, 1100)]),
    "mixed": (4, 1, 3, [(1, 290), (20, 300), (301, 3)]),
    "wide": (40, 1, 10, [(30, 40), (41, 10)]),
    "threads": (6, 1, 4, [(60, 300), (301, 40), (41, 4)]),
}
WAITING = {"nothing": None, "all": (0.9, 0.1, 0.98, 0.05), "forgets": (1.0, 0.0, 0.0, 0.5)}


def problem(case: str, waiting: str, dtype, seed: int = 0) -> tuple[LazyDLR, Rows, jax.Array]:
    rank, examples, columns, layers = CASES[case]
    rng = np.random.default_rng(seed)
    size = sum(i * o for i, o in layers)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), dtype)

    base = DLRGaussian(draw(size), jnp.exp(draw(size)), draw(rank, size))
    scalars = WAITING[waiting]
    belief = lazy_dlr.at_rest(base, ever_moves=scalars is not None)
    if scalars is not None:
        belief = belief._replace(pending=Pending(*(jnp.asarray(s, dtype) for s in scalars)))
    G = Rows(
        tuple(draw(examples, i) for i, _ in layers),
        tuple(draw(examples, columns, o) for _, o in layers),
    )
    return belief, G, draw(examples * columns)


def condition(which: str, monkeypatch, function=lazy_dlr.condition):
    """The new belief; compiled while the switch says so, since the choice is made when tracing."""

    def run(*args):
        monkeypatch.setenv("BAYESTREAM_KERNELS", which)
        return jax.jit(lambda *a: function(*a)[0])(*args)

    return run


def assert_same(one: LazyDLR, other: LazyDLR, **tolerance) -> None:
    """The same belief: rows of W may differ in sign, or turn where singular values coincide."""
    for a, b in zip(one.base[:2], other.base[:2], strict=True):
        np.testing.assert_allclose(a, b, **tolerance)
    probe = np.random.default_rng(9).normal(size=(one.base.mean.size, 4))
    spans = [b.base.factor.T @ (b.base.factor @ probe) for b in (one, other)]
    rounding = 1e-11 * np.max(np.abs(spans[1]), initial=0.0)  # of the sums behind each number
    np.testing.assert_allclose(*spans, rtol=tolerance["rtol"], atol=rounding)


@pytest.mark.parametrize(
    "waiting", ["all", *(pytest.param(w, marks=pytest.mark.slow) for w in ("nothing", "forgets"))]
)
@pytest.mark.parametrize("case", CASES)
def test_native_is_jax_in_float64(case, waiting, monkeypatch):
    args = problem(case, waiting, jnp.float64)
    native, pure = (condition(which, monkeypatch)(*args) for which in ("native", "jax"))
    assert_same(native, pure, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_native_in_float32_is_near_float64(case, monkeypatch):
    exact = condition("native", monkeypatch)(*problem(case, "all", jnp.float64))
    single = condition("native", monkeypatch)(*problem(case, "all", jnp.float32))
    assert single.base.mean.dtype == jnp.float32
    np.testing.assert_allclose(single.base.mean, exact.base.mean, rtol=1e-3, atol=1e-4)
    total = [b.base.diag + jnp.sum(b.base.factor**2, axis=0) for b in (single, exact)]
    np.testing.assert_allclose(*total, rtol=1e-4)


@pytest.mark.parametrize("case", ["tiny", "batch", "threads"])
def test_vmap_is_a_loop(case, monkeypatch):
    trials = [problem(case, "all", jnp.float64, seed) for seed in range(5)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trials)
    together = condition("native", monkeypatch, jax.vmap(lazy_dlr.condition))(*stacked)
    for index, trial in enumerate(trials):
        alone = condition("native", monkeypatch)(*trial)
        one = jax.tree.map(lambda leaf, i=index: leaf[i], together)
        assert_same(one, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["uci", "threads"])
def test_what_a_belief_at_rest_knows_of_its_factor_stays_true(case, monkeypatch):
    belief, _, _ = problem(case, "nothing", jnp.float64)
    run = condition("native", monkeypatch)
    for seed in range(4):
        _, G, residual = problem(case, "nothing", jnp.float64, seed)
        belief = run(belief, G, residual)
    exact = belief.base.factor @ belief.base.factor.T
    np.testing.assert_allclose(belief.gram, exact, rtol=1e-10, atol=1e-10 * np.max(exact))


@pytest.mark.parametrize("waiting", ["nothing", pytest.param("all", marks=pytest.mark.slow)])
def test_a_belief_that_begins_with_no_directions_learns_as_in_jax(waiting, monkeypatch):
    belief, G, _ = problem("uci", waiting, jnp.float32)
    mean, diag = belief.base[:2]
    none = belief._replace(base=DLRGaussian(mean, jnp.ones_like(diag), jnp.zeros((100, mean.size))))
    beliefs = dict.fromkeys(("native", "jax"), jax.tree.map(lambda a: a.astype(jnp.float32), none))
    steps = {which: condition(which, monkeypatch) for which in beliefs}
    for step in range(1, 4):
        part = jax.tree.map(lambda leaf, step=step: jnp.roll(leaf, step, axis=-1), G)
        residual = jnp.ones(1, jnp.float32)
        beliefs = {w: steps[w](each, part, residual) for w, each in beliefs.items()}
    one, other = (beliefs[which].base for which in ("native", "jax"))
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-3, atol=1e-4)
    precisions = [base.factor.T @ base.factor + jnp.diag(base.diag) for base in (one, other)]
    np.testing.assert_allclose(*precisions, rtol=1e-3, atol=1e-3 * float(precisions[1].max()))


def spherical_problem(case: str, dtype, seed: int = 0) -> tuple[SphericalGaussian, Rows, jax.Array]:
    """A belief of two updates, so that its directions are orthogonal, with one not yet in use."""
    belief, G, residual = problem(case, "nothing", dtype, seed)
    mean, _, factor = belief.base
    basis = jnp.linalg.qr(factor.T)[0].T
    scales = 30.0 * jnp.arange(len(basis), dtype=dtype)
    basis = jnp.where(scales[:, None] > 0, basis, 0.0)
    return SphericalGaussian(mean, jnp.asarray(0.7, dtype), scales, basis), G, residual


PROJECTIONS = {"svd": bs.estimators.svd, "orthogonal": bs.estimators.orthogonal}


def project(which: str, monkeypatch, projection: str, threshold: float | None = None):
    function = PROJECTIONS[projection]
    key = jax.random.key(4)
    return condition(which, monkeypatch, lambda *args: function(*args, threshold, key))


def assert_same_sphere(one: SphericalGaussian, other: SphericalGaussian, **tolerance) -> None:
    np.testing.assert_allclose(one.mean, other.mean, **tolerance)
    assert one.precision == other.precision
    ordered = [np.sort(np.asarray(b.scales)) for b in (one, other)]
    np.testing.assert_allclose(*ordered, **tolerance)
    probe = np.random.default_rng(9).normal(size=(one.mean.size, 4))
    spans = [b.basis.T @ (b.scales[:, None] ** 2 * (b.basis @ probe)) for b in (one, other)]
    rounding = tolerance["rtol"] * np.max(np.abs(spans[1]), initial=0.0)
    np.testing.assert_allclose(*spans, rtol=tolerance["rtol"], atol=rounding)


@pytest.mark.parametrize("threshold", [None, pytest.param(2.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("case", CASES)
def test_spherical_native_is_jax_in_float64(case, projection, threshold, monkeypatch):
    args = spherical_problem(case, jnp.float64)
    native, pure = (
        project(which, monkeypatch, projection, threshold)(*args) for which in ("native", "jax")
    )
    assert_same_sphere(native, pure, rtol=1e-9, atol=1e-9)
    lengths = np.linalg.norm(native.basis, axis=1)
    np.testing.assert_allclose(lengths[native.scales > 1e-3], 1, rtol=1e-9)


@pytest.mark.parametrize("which", ["native", "jax"])
def test_columns_that_depend_on_each_other_bring_no_direction_of_rounding(which, monkeypatch):
    belief, G, residual = spherical_problem("wide", jnp.float64)
    none = belief._replace(scales=0 * belief.scales, basis=0 * belief.basis)
    classes = bs.likelihoods.categorical().seen(jnp.arange(10.0) / 5, jnp.array(3))[0]
    deltas = tuple(jnp.einsum("ekd,kj->ejd", delta, classes) for delta in G.deltas)
    found = project(which, monkeypatch, "orthogonal")(none, Rows(G.activations, deltas), residual)
    used = np.asarray(found.basis)[np.asarray(found.scales) > 0]
    assert len(used) == 9  # of ten columns, which √p sums up to nothing
    np.testing.assert_allclose(used @ used.T, np.eye(9), atol=1e-12)


@pytest.mark.parametrize("projection", ["svd", pytest.param("orthogonal", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_spherical_native_in_float32_is_near_float64(case, projection, monkeypatch):
    run = project("native", monkeypatch, projection)
    single, exact = (run(*spherical_problem(case, t)) for t in (jnp.float32, jnp.float64))
    assert single.mean.dtype == single.basis.dtype == jnp.float32
    np.testing.assert_allclose(single.mean, exact.mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(single.scales, exact.scales, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("case", ["tiny", "batch", "threads"])
def test_spherical_vmap_is_a_loop(case, monkeypatch):
    trials = [spherical_problem(case, jnp.float64, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trials)
    together = condition("native", monkeypatch, jax.vmap(bs.estimators.svd))(*stacked)
    for index, trial in enumerate(trials):
        alone = condition("native", monkeypatch, bs.estimators.svd)(*trial)
        one = jax.tree.map(lambda leaf, i=index: leaf[i], together)
        assert_same_sphere(one, alone, rtol=1e-10, atol=1e-10)


def test_a_spherical_belief_that_cannot_learn_is_left_alone(monkeypatch):
    belief, G, residual = spherical_problem("uci", jnp.float32)
    monkeypatch.setenv("BAYESTREAM_KERNELS", "native")
    after, innovation = jax.jit(bs.estimators.svd)(belief, G, residual * jnp.nan)
    assert np.all(np.isnan(innovation.weights))
    assert not np.any(innovation.trust)
    jax.tree.map(np.testing.assert_array_equal, after, belief)


ALONE = [case for case, (_, examples, *_) in CASES.items() if examples == 1]


def spread(which: str, monkeypatch, belief: LazyDLR, G: Rows, function=lazy_dlr.covariance_of):
    monkeypatch.setenv("BAYESTREAM_KERNELS", which)
    return jax.jit(lambda *args: function(*args))(belief, G)


@pytest.mark.parametrize("case", ALONE)
def test_doubt_about_one_example_is_that_of_jax(case, monkeypatch):
    belief, G, _ = problem(case, "all", jnp.float64)
    native, pure = (spread(which, monkeypatch, belief, G) for which in ("native", "jax"))
    np.testing.assert_allclose(native, pure, rtol=1e-10, atol=1e-12)
    belief, G, _ = problem(case, "nothing", jnp.float32)
    exact, G_exact, _ = problem(case, "nothing", jnp.float64)
    single = spread("native", monkeypatch, belief, G)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(
        single, spread("jax", monkeypatch, exact, G_exact), rtol=1e-3, atol=1e-4
    )


def test_doubt_under_vmap_is_a_loop_over_beliefs_examples_or_both(monkeypatch):
    trials = [problem("tiny", "all", jnp.float64, seed)[:2] for seed in range(3)]
    beliefs, rows_ = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trials)
    over = lazy_dlr.covariance_of
    both = jax.vmap(jax.vmap(over, in_axes=(None, 0)), in_axes=(0, None))
    crossed = jax.vmap(jax.vmap(over, in_axes=(0, None)), in_axes=(None, 0))
    found = spread("native", monkeypatch, beliefs, rows_, both)
    turned = spread("native", monkeypatch, beliefs, rows_, crossed)
    for i, (belief, _) in enumerate(trials):
        for j, (_, G) in enumerate(trials):
            alone = spread("native", monkeypatch, belief, G)
            np.testing.assert_allclose(found[i, j], alone, rtol=1e-12)
            np.testing.assert_allclose(turned[j, i], alone, rtol=1e-12)


DIAGONAL = {
    "precision": diagonal.condition_precision,
    "variance": diagonal.condition_variance,
}


def diagonal_problem(case: str, dtype, seed: int = 0) -> tuple[DiagonalGaussian, Rows, jax.Array]:
    belief, G, residual = problem(case, "nothing", dtype, seed)
    return DiagonalGaussian(belief.base.mean, belief.base.diag), G, residual


def written_out(belief: DiagonalGaussian, G: Rows, residual, kept: str) -> tuple:
    """The exact posterior's mean, and the diagonal precision that keeps one of its diagonals."""
    matrix = np.asarray(rows.to_dense(G))
    upsilon = np.asarray(belief.diag)
    inside = np.linalg.inv(np.eye(len(matrix)) + matrix / upsilon @ matrix.T)
    mean = belief.mean + (residual @ inside @ matrix) / upsilon
    if kept == "precision":
        return mean, upsilon + np.sum(matrix**2, axis=0)
    lost = np.einsum("mp,mn,np->p", matrix, inside, matrix) / upsilon**2
    return mean, 1 / (1 / upsilon - lost)


@pytest.mark.parametrize("which", ["native", "jax"])
@pytest.mark.parametrize("kept", DIAGONAL)
@pytest.mark.parametrize("case", CASES)
def test_diagonal_beliefs_keep_the_exact_diagonal(case, kept, which, monkeypatch):
    args = diagonal_problem(case, jnp.float64)
    conditioned = condition(which, monkeypatch, DIAGONAL[kept])(*args)
    for got, exact in zip(conditioned, written_out(*args, kept), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kept", DIAGONAL)
@pytest.mark.parametrize("case", CASES)
def test_diagonal_native_in_float32_is_near_float64(case, kept, monkeypatch):
    run = condition("native", monkeypatch, DIAGONAL[kept])
    single = run(*diagonal_problem(case, jnp.float32))
    assert single.mean.dtype == single.diag.dtype == jnp.float32
    exact = run(*diagonal_problem(case, jnp.float64))
    np.testing.assert_allclose(single.mean, exact.mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(single.diag, exact.diag, rtol=1e-3)


@pytest.mark.parametrize("kept", DIAGONAL)
@pytest.mark.parametrize("case", ["tiny", "batch", "threads"])
def test_diagonal_vmap_is_a_loop(case, kept, monkeypatch):
    trials = [diagonal_problem(case, jnp.float64, seed) for seed in range(5)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trials)
    together = condition("native", monkeypatch, jax.vmap(DIAGONAL[kept]))(*stacked)
    for index, trial in enumerate(trials):
        alone = condition("native", monkeypatch, DIAGONAL[kept])(*trial)
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_allclose(many[index], one, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kept", DIAGONAL)
def test_diagonal_conditioning_repeats_exactly_and_leaves_its_arguments(kept, monkeypatch):
    args = diagonal_problem("threads", jnp.float32)
    before = jax.tree.map(np.array, args)
    run = condition("native", monkeypatch, DIAGONAL[kept])
    first = run(*args)
    for _ in range(5):
        jax.tree.map(np.testing.assert_array_equal, run(*args), first)
    jax.tree.map(np.testing.assert_array_equal, before, args)


def test_variance_that_rounds_to_nothing_stays_positive(monkeypatch):
    """Observed 10^12 times as sharply as it was known, in float32: no share of 1 is left."""
    belief = DiagonalGaussian(jnp.zeros(3, jnp.float32), jnp.full(3, 1e-6, jnp.float32))
    G = rows.from_dense(jnp.asarray([[1e3, 0.0, 0.0]], jnp.float32))
    for which in ("native", "jax"):
        run = condition(which, monkeypatch, diagonal.condition_variance)
        diag = run(belief, G, jnp.ones(1, jnp.float32)).diag
        assert np.all(np.isfinite(diag))
        assert np.all(diag >= belief.diag)


def test_the_same_numbers_come_out_every_time(monkeypatch):
    """Threads may finish in any order; the sums may not notice."""
    args = problem("threads", "all", jnp.float32)
    run = condition("native", monkeypatch)
    first = run(*args)
    for _ in range(5):
        jax.tree.map(np.testing.assert_array_equal, run(*args), first)


def test_the_caller_keeps_its_arrays(monkeypatch):
    args = problem("uci", "all", jnp.float64)
    before = jax.tree.map(np.array, args)
    condition("native", monkeypatch)(*args)
    jax.tree.map(np.testing.assert_array_equal, before, args)


def test_a_switch_turns_them_off(monkeypatch):
    for which in ("native", "jax"):
        monkeypatch.setenv("BAYESTREAM_KERNELS", which)
        assert bs.kernels.in_use() == which
    monkeypatch.setenv("BAYESTREAM_KERNELS", "cuda")
    with pytest.raises(ValueError, match=r"^BAYESTREAM_KERNELS must be one of .*, got 'cuda'"):
        bs.kernels.in_use()


def test_asking_for_kernels_that_are_not_there_says_what_to_do(monkeypatch):
    monkeypatch.setattr(native, "built", lambda: False)
    monkeypatch.setenv("BAYESTREAM_KERNELS", "native")
    with pytest.raises(ImportError, match="install a C\\+\\+ compiler"):
        bs.kernels.in_use()
    monkeypatch.delenv("BAYESTREAM_KERNELS")
    assert bs.kernels.in_use() == "jax"


def test_a_whole_run_is_the_same_on_both(monkeypatch):
    model = bs.models.mlp([2, 40, 3])
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(60, 2)), rng.integers(0, 3, 60)
    means = []
    for which in ("native", "jax"):
        monkeypatch.setenv("BAYESTREAM_KERNELS", which)
        learner = bs.lofi(
            model,
            bs.likelihoods.categorical(),
            rank=5,
            decay=0.99,
            inflation=bs.inflation.hybrid(0.01),
        )
        state, _ = bs.run(learner, learner.init(jax.random.key(0)), (xs, ys))
        means.append(learner.mean(state))
    np.testing.assert_allclose(*means, rtol=1e-7, atol=1e-9)


def both(monkeypatch, function, *args):
    """What a function makes of its arguments on either kernels."""
    for which in ("native", "jax"):
        monkeypatch.setenv("BAYESTREAM_KERNELS", which)
        yield jax.jit(lambda *args: function(*args))(*args)


# (height, width, channels, outputs): rows left over by pooling, more and fewer than a vector.
@pytest.mark.parametrize(("shape", "columns"), [((4, 5, 3, 2), 14), ((7, 6, 17, 9), 1)])
def test_convolutions_are_pulled_back_as_in_jax(shape, columns, monkeypatch):
    height, width, channels, outputs = shape
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(3, height, width, channels)))
    slopes = jnp.asarray(rng.normal(size=(3, height, width, outputs)))
    kernel = jnp.asarray(rng.normal(size=(3, 3, channels, outputs)))
    pooled = jnp.asarray(rng.normal(size=(3, columns, height // 2, width // 2, outputs)))

    def together(images, slopes, kernel, pooled):
        of_one = jax.vmap(pull_back, (None, None, None, 0))
        alone = pull_back(images[0], slopes[0], None, pooled[0, 0])
        return jax.vmap(of_one, (0, 0, None, 0))(images, slopes, kernel, pooled), alone

    native, plain = both(monkeypatch, together, images, slopes, kernel, pooled)
    for one, other in zip(jax.tree.leaves(native), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1024, 2055])
def test_products_of_long_rows_are_those_of_jax(size, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 7, size), (11, size)))
    weights = jnp.asarray(rng.uniform(size=size))
    function = jax.vmap(products, (0, None, None))
    native, plain = both(monkeypatch, function, x, y, weights)
    np.testing.assert_allclose(native, plain, rtol=1e-12, atol=1e-12)
    for which in ("native", "jax"):
        monkeypatch.setenv("BAYESTREAM_KERNELS", which)
        gradient = jax.grad(lambda y: jnp.sum(products(x[0], y, weights) ** 2))(y)
        found = 2 * (plain[0].T @ (x[0] * weights))
        np.testing.assert_allclose(gradient, found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("waiting", ["nothing", "all"])
def test_many_spreads_are_those_of_the_dense_belief(waiting, monkeypatch):
    belief, G, _ = problem("plain batch", waiting, jnp.float64)
    covariance = np.asarray(lazy_dlr.to_dense(belief).covariance)
    J = np.asarray(rows.to_dense(G)).reshape(*G.deltas[0].shape[:2], -1)
    for found in both(monkeypatch, lazy_dlr.covariance_of, belief, G):
        np.testing.assert_allclose(found, J @ covariance @ J.transpose(0, 2, 1), rtol=1e-9)


def test_an_average_copies_no_belief_that_its_update_overwrites():
    model, noise = bs.models.mlp([2, 3, 1]), bs.likelihoods.gaussian(0.1)
    average = bs.averaged(
        lambda **setting: bs.lofi(model, noise, rank=2, **setting), bs.grid(drift=[0.0, 1e-3])
    )

    def steps(state):
        xs, ys = jnp.ones((2, 2)), jnp.ones((2, 1))
        return jax.lax.fori_loop(0, 2, lambda i, own: average.update(own, xs[i], ys[i]), state)

    start = average.init(jax.random.key(0))
    program = jax.jit(steps, donate_argnums=0).lower(start).compile().as_text().splitlines()
    [factor] = [leaf for leaf in jax.tree.leaves(start) if leaf.ndim == 3]
    shape = "[" + ",".join(map(str, factor.shape)) + "]"
    assert any(shape in line and "dlr_condition" in line for line in program)
    assert not any(shape in line and " copy(" in line for line in program)
