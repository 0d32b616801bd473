"""Every posterior family against the dense NumPy form of the same belief."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

import oracles
from bayestream.gaussians import (
    DenseGaussian,
    DiagonalGaussian,
    DLRGaussian,
    LastLayerGaussian,
    SphericalGaussian,
    dense,
    diagonal,
    dlr,
    last_layer,
    spherical,
)
from bayestream.gaussians.innovation import kept
from bayestream.gaussians.linalg import cholesky_of_identity_plus
from bayestream.networks.rows import from_dense

FAMILIES = {
    "dense": dense,
    "diagonal": diagonal,
    "dlr": dlr,
    "last_layer": last_layer,
    "spherical": spherical,
}

# Each new shape costs seconds of compilation, so the shapes (P, L) are few and at the edges:
# one parameter, no rank, rank P, and more directions than parameters.
shapes = st.sampled_from([(1, 3), (4, 0), (4, 4), (8, 5)])
seeds = st.integers(0, 2**32 - 1)
each_family = pytest.mark.parametrize("name", FAMILIES)
examples = settings(deadline=None, derandomize=True, max_examples=25)
condition = jax.jit(lambda *args: dlr.condition(*args)[0])
DYNAMICS = [(1.0, 0.2), (0.9, 0.0), (0.7, 0.5), (0.0, 0.3)]


def _belief(name, shape, rng):
    """Draw a belief of a family; give it and the same belief as a mean and a dense covariance."""
    size, rank = shape
    mean, diag = rng.normal(size=size), 10 ** rng.uniform(-1, 1, size)
    factor = rng.normal(size=(rank, size)) * 10 ** rng.uniform(-2, 1, (rank, 1))
    if name == "dense":
        precision = np.diag(diag) + factor.T @ factor
        belief = DenseGaussian(mean, np.linalg.inv(precision))
    elif name == "diagonal":
        precision = np.diag(diag)
        belief = DiagonalGaussian(mean, diag)
    elif name == "dlr":
        precision = np.diag(diag) + factor.T @ factor
        belief = DLRGaussian(mean, diag, factor)
    elif name == "last_layer":
        hidden = size // 2
        low = factor[:, :hidden].T @ factor[:, :hidden] + diag[0] * np.eye(hidden)
        full = np.diag(diag) + factor.T @ factor
        last = np.linalg.inv(full[hidden:, hidden:])
        belief = LastLayerGaussian(mean, factor[:, :hidden], diag[0], last)
        precision = np.linalg.inv(block_diag(low, last))
    else:
        used = min(rank, size)  # there is no room for more orthonormal rows: the rest are zero
        basis = np.zeros((rank, size))
        basis[:used] = np.linalg.qr(rng.normal(size=(size, size)))[0][:used]
        scales = np.where(np.arange(rank) < used, 10 ** rng.uniform(-2, 1, rank), 0.0)
        precision = diag[0] * np.eye(size) + (basis.T * scales**2) @ basis
        belief = SphericalGaussian(mean, diag[0], scales, basis)
    exact = oracles.Dense(mean, np.linalg.inv(precision))
    return type(belief)(*map(jnp.asarray, belief)), exact


def _dlr(shape, rng):
    return _belief("dlr", shape, rng)[0]


def _precision(belief):
    diag, factor = np.asarray(belief.diag, np.float64), np.asarray(belief.factor, np.float64)
    return np.diag(diag) + factor.T @ factor


def _assert_close(actual, expected, tolerance=1e-9):
    """Close relative to the largest entry, since small ones are differences of large ones."""
    expected = np.asarray(expected)
    scale = np.max(np.abs(expected), initial=1e-300)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)


def _assert_same_belief(name, actual, exact, tolerance=1e-9):
    mean, covariance = FAMILIES[name].to_dense(actual)
    _assert_close(mean, exact.mean, tolerance)
    _assert_close(covariance, exact.covariance, tolerance)


@each_family
@examples
@given(shape=shapes, seed=seeds)
def test_products_with_the_covariance_are_the_dense_ones(name, shape, seed):
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    belief, (mean, covariance) = _belief(name, shape, rng)
    rows = rng.normal(size=(3, shape[0]))
    _assert_close(family.mean(belief), mean, 0.0)
    _assert_close(family.covariance_times(belief, rows[0]), covariance @ rows[0])
    _assert_close(family.covariance_times(belief, rows), rows @ covariance)
    _assert_close(family.covariance_between(belief, rows), rows @ covariance @ rows.T)
    _assert_close(family.variance(belief), np.diag(covariance))
    _assert_same_belief(name, belief, oracles.Dense(mean, covariance))


@each_family
@examples
@given(shape=shapes, seed=seeds)
def test_log_determinant_and_log_density_are_the_dense_ones(name, shape, seed):
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    belief, exact = _belief(name, shape, rng)
    theta = rng.normal(size=shape[0])
    expected = oracles.log_determinant(exact.covariance)
    np.testing.assert_allclose(family.log_determinant(belief), expected, rtol=1e-9, atol=1e-9)
    expected = oracles.gaussian_log_density(exact, theta)
    np.testing.assert_allclose(family.log_density(belief, theta), expected, rtol=1e-9, atol=1e-9)


@each_family
@examples
@given(shape=shapes, seed=seeds)
def test_kl_is_the_dense_one_never_negative_and_zero_to_itself(name, shape, seed):
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    belief, exact = _belief(name, shape, rng)
    other, exact_other = _belief(name, shape, rng)
    divergence = family.kl(belief, other)
    expected = oracles.gaussian_kl(exact, exact_other)
    np.testing.assert_allclose(divergence, expected, rtol=1e-9, atol=1e-9)
    assert divergence >= 0
    np.testing.assert_allclose(family.kl(belief, belief), 0.0, atol=1e-10)


@each_family
@examples
@given(shape=shapes, seed=seeds, dynamics=st.sampled_from(DYNAMICS))
def test_propagate_is_decay_squared_sigma_plus_drift(name, shape, seed, dynamics):
    belief, exact = _belief(name, shape, np.random.default_rng(seed))
    moved = FAMILIES[name].propagate(belief, *dynamics)
    _assert_same_belief(name, moved, oracles.dense_predict(exact, *dynamics))


@each_family
@examples
@given(shape=shapes, seed=seeds)
def test_propagate_without_decay_or_drift_changes_nothing(name, shape, seed):
    belief, _ = _belief(name, shape, np.random.default_rng(seed))
    still = FAMILIES[name].propagate(belief, 1.0, 0.0)
    for before, after in zip(belief, still, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-14)


@each_family
@examples
@given(shape=shapes, seed=seeds)
def test_temper_scales_the_precision_and_add_precision_adds_to_it(name, shape, seed):
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    belief, (mean, covariance) = _belief(name, shape, rng)
    power, amount = rng.uniform(0.2, 1.0), rng.uniform(0.0, 3.0)
    _assert_same_belief(name, family.temper(belief, power), oracles.Dense(mean, covariance / power))
    added = np.linalg.inv(np.linalg.inv(covariance) + amount * np.eye(mean.size))
    _assert_same_belief(name, family.add_precision(belief, amount), oracles.Dense(mean, added))


@each_family
@examples
@given(shape=shapes, seed=seeds)
def test_move_changes_the_mean_alone(name, shape, seed):
    rng = np.random.default_rng(seed)
    belief, exact = _belief(name, shape, rng)
    elsewhere = rng.normal(size=shape[0])
    moved = FAMILIES[name].move(belief, jnp.asarray(elsewhere))
    _assert_same_belief(name, moved, exact._replace(mean=elsewhere))


def _condition(shape, rng, unused=0):
    """Condition a random belief on two rows G; give it before and after, and its stacked factor."""
    belief, rows = _dlr(shape, rng), rng.normal(size=(2, shape[0]))
    belief = belief._replace(factor=belief.factor.at[len(belief.factor) - unused :].set(0.0))
    residual = rng.normal(size=2)
    after = condition(belief, from_dense(jnp.asarray(rows)), jnp.asarray(residual))
    assert after.factor.shape == belief.factor.shape
    return belief, after, np.vstack([belief.factor, rows]), residual


@examples
@given(shape=shapes, seed=seeds)
def test_conditioning_moves_the_mean_as_the_dense_update_does(shape, seed):
    belief, after, stacked, residual = _condition(shape, np.random.default_rng(seed))
    precision, rows = np.diag(belief.diag) + stacked.T @ stacked, stacked[shape[1] :]
    step = np.linalg.solve(precision, rows.T @ residual)
    np.testing.assert_allclose(after.mean, belief.mean + step, rtol=1e-9, atol=1e-9)


@examples
@given(shape=shapes, seed=seeds)
def test_conditioning_at_any_rank_keeps_the_diagonal_of_the_precision(shape, seed):
    belief, after, stacked, _ = _condition(shape, np.random.default_rng(seed))
    expected = np.asarray(belief.diag) + np.sum(stacked**2, axis=0)
    np.testing.assert_allclose(np.diag(_precision(after)), expected, rtol=1e-13)
    assert np.all(np.asarray(after.diag) >= np.asarray(belief.diag))


@examples
@given(shape=shapes.filter(lambda shape: shape[1] >= 2), seed=seeds)
def test_conditioning_is_exact_while_there_are_unused_directions(shape, seed):
    belief, after, stacked, _ = _condition(shape, np.random.default_rng(seed), unused=2)
    _assert_close(_precision(after), np.diag(belief.diag) + stacked.T @ stacked, 1e-13)
    np.testing.assert_allclose(after.diag, belief.diag, rtol=1e-13)


@examples
@given(shape=shapes, seed=seeds)
def test_conditioning_keeps_the_best_approximation_of_its_rank(shape, seed):
    _, after, stacked, _ = _condition(shape, np.random.default_rng(seed))
    rank, kept = shape[1], np.asarray(after.factor)
    values = np.linalg.svd(stacked, compute_uv=False)
    _assert_close(np.linalg.svd(kept, compute_uv=False)[: values.size], values[:rank])
    # Eckart and Young: no approximation of this rank is nearer in the spectral norm.
    distance = np.linalg.norm(stacked.T @ stacked - kept.T @ kept, 2)
    best = values[rank] ** 2 if rank < values.size else 0.0
    np.testing.assert_allclose(distance, best, rtol=1e-9, atol=1e-12 * np.sum(values**2))


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.float64, 1e-13)])
@pytest.mark.parametrize("rank", [1, 3])
def test_conditioning_survives_rows_of_very_different_scales(rank, dtype, tolerance):
    rng = np.random.default_rng(1)
    stacked = rng.normal(size=(4, 6)) * np.array([[1e6], [1e-12], [1.0], [1e-12]])
    stacked[0, 3:] = stacked[2, 4:] = 0.0  # so that some parameters see the tiny rows alone
    factor, rows = stacked[:rank], stacked[rank:]
    diag = np.array([1.0, 1e-3, 1e3, 1e-3, 1e-24, 1e-24])
    belief = DLRGaussian(*(jnp.asarray(part, dtype) for part in (np.zeros(6), diag, factor)))
    new = from_dense(jnp.asarray(rows, dtype))
    after = condition(belief, new, jnp.ones(len(rows), dtype))
    expected = diag + np.sum(stacked**2, axis=0)
    np.testing.assert_allclose(np.diag(_precision(after)), expected, rtol=tolerance)
    assert all(np.all(np.isfinite(part)) for part in after)


@pytest.mark.parametrize("together", [1, 4, 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_dense_covariance_in_float32_stays_one_where_noise_is_below_rounding(seed, together):
    """A standard deviation of 1e-4 beside a prior of 1.7; Kalman's formula ends in NaN."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=40)
    belief = DenseGaussian(jnp.zeros(40, jnp.float32), 3.0 * jnp.eye(40, dtype=jnp.float32))
    x = rng.normal(size=(2_000, 40)) * np.geomspace(1.0, 1e-2, 40)

    def step(belief, given):
        residual = given[:, 0] - given[:, 1:] @ belief.mean
        return dense.condition(belief, from_dense(given[:, 1:]), residual)[0], None

    given = np.column_stack([x @ truth, x]).reshape(-1, together, 41) / 1e-4
    belief, _ = jax.lax.scan(step, belief, jnp.asarray(given, jnp.float32))
    assert np.max(np.abs(x @ (np.asarray(belief.mean) - truth))) < 1e-5
    assert np.min(np.linalg.eigvalsh(np.asarray(belief.covariance, float))) > 0


def test_a_dense_covariance_is_not_rounded_up_where_there_is_no_need():
    """Noise as large as the signal: 1,000 steps of float32 end where float64 does."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=(1_000, 41))

    def after(dtype):
        def step(belief, row):
            residual = row[:1] - row[1:] @ belief.mean
            return dense.condition(belief, from_dense(row[None, 1:]), residual)[0], None

        first = DenseGaussian(jnp.zeros(40, dtype), jnp.eye(40, dtype=dtype))
        return jax.lax.scan(step, first, jnp.asarray(given, dtype))[0]

    for single, double in zip(after(jnp.float32), after(jnp.float64), strict=True):
        distance = np.linalg.norm(np.asarray(single, float) - double)
        assert distance < 1e-5 * np.linalg.norm(double)


def test_no_variance_is_raised_by_an_update_however_long_the_stream():
    g = from_dense(jnp.asarray([[1.0, 1e-4, 1e-9, 0.0]], jnp.float32))
    first = DenseGaussian(jnp.zeros(4, jnp.float32), jnp.eye(4, dtype=jnp.float32))
    after, _ = jax.lax.scan(
        lambda belief, _: (dense.condition(belief, g, jnp.ones(1, jnp.float32))[0], None),
        first,
        length=10_000,
    )
    variances = np.diagonal(after.covariance)
    assert np.all(variances <= 1)
    assert variances[3] == 1
    np.testing.assert_allclose(variances[0], 1e-4, rtol=1e-2)


@each_family
def test_twenty_thousand_draws_have_the_mean_and_covariance(name):
    count = 20_000
    belief, (mean, covariance) = _belief(name, (4, 4), np.random.default_rng(2))
    keys = jax.random.split(jax.random.key(0), count)
    draws = np.asarray(jax.vmap(lambda key: FAMILIES[name].sample(belief, key))(keys))
    variance = np.diag(covariance)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / count))
    standard_error = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * standard_error)


@each_family
@pytest.mark.parametrize("shape", [(4, 0), (8, 5)])
def test_a_draw_is_an_exact_root_of_the_covariance_times_white_noise(name, shape, monkeypatch):
    belief, (mean, covariance) = _belief(name, shape, np.random.default_rng(3))

    def draw(white):
        left = [white]

        def normal(key, shape, *_):
            part, left[0] = left[0][: shape[0]], left[0][shape[0] :]
            return part

        monkeypatch.setattr(jax.random, "normal", normal)
        return FAMILIES[name].sample(belief, jax.random.key(0))

    root = np.asarray(jax.jacobian(draw)(jnp.zeros(sum(shape))))
    _assert_close(draw(jnp.zeros(sum(shape))), mean, 1e-12)
    _assert_close(root @ root.T, covariance)


@examples
@given(shape=shapes, seed=seeds)
def test_cholesky_of_identity_plus_is_numpys(shape, seed):
    factor = np.random.default_rng(seed).normal(size=shape[::-1])
    gram = factor @ factor.T
    expected = np.linalg.cholesky(gram + np.eye(len(gram)))
    np.testing.assert_allclose(cholesky_of_identity_plus(jnp.asarray(gram)), expected, atol=1e-12)


@pytest.mark.parametrize("exponent", range(0, 13, 2))
def test_cholesky_of_identity_plus_is_finite_for_huge_singular_float32(exponent):
    gram = jnp.full((3, 3), 10.0**exponent, jnp.float32)
    factor = np.asarray(cholesky_of_identity_plus(gram), np.float64)
    assert np.all(np.isfinite(factor))
    assert np.all(np.diag(factor) > 0)
    _assert_close(factor @ factor.T, np.asarray(gram) + np.eye(3), 1e-5)


@pytest.mark.parametrize("threshold", [None, 2.0])
def test_what_is_kept_of_an_error_is_the_share_of_noise_in_its_variance(threshold):
    """One output: R/(H Σ Hᵀ + R), whitened 1/(1 + G Σ Gᵀ), also where the error is weighed less."""
    rng = np.random.default_rng(0)
    belief = dlr.DLRGaussian(*map(jnp.asarray, (np.zeros(6), np.ones(6), rng.normal(size=(2, 6)))))
    row = rng.normal(size=(1, 6))
    residual = jnp.array([5.0])
    _, innovation = dlr.condition(belief, from_dense(jnp.asarray(row)), residual, threshold)
    covariance = np.linalg.inv(np.eye(6) + belief.factor.T @ belief.factor)
    doubt = float(innovation.trust[0]) ** 2 * (row @ covariance @ row.T)[0, 0]
    found = kept(residual, innovation, 1)
    np.testing.assert_allclose(found, [1 / (1 + doubt)], rtol=1e-12)
    nothing = innovation._replace(weights=jnp.full(1, jnp.nan))
    np.testing.assert_array_equal(kept(residual, nothing, 1), [1.0])
    np.testing.assert_array_equal(kept(jnp.zeros(1), innovation, 1), [1.0])
