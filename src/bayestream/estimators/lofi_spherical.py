"""Spherical LO-FI: a spherical plus low-rank precision, with an O(P) predict step."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bayestream.checks import check_rank
from bayestream.estimators.description import described
from bayestream.estimators.filter import gaussian_filter
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.line_search import DEFAULT, LineSearch
from bayestream.gaussians import dlr, kernels, spherical
from bayestream.gaussians.innovation import Innovation
from bayestream.gaussians.linalg import directions
from bayestream.gaussians.spherical import SphericalGaussian
from bayestream.networks import rows
from bayestream.networks.linearize import Observation
from bayestream.networks.rows import Rows
from bayestream.networks.shards import total
from bayestream.types import (
    Array,
    Estimator,
    EvolvingLikelihood,
    Key,
    Likelihood,
    Model,
    ScalarOrSchedule,
)

# (belief, G, v, the outlier threshold, key) → the belief conditioned on them, and the innovation
Projection = Callable[
    [SphericalGaussian, Rows, Array, float | None, Key | None],
    tuple[SphericalGaussian, Innovation],
]
# The part of a column's length that may be rounding, of which a direction would be orthogonal to
# none: in float32, from Gram matrices, 3e-4. A millionth of the column's information is lost by it.
_ROUNDING = 1e-3


def svd(
    belief: SphericalGaussian,
    G: Rows,
    residual: Array,
    threshold: float | None = None,
    key: Key | None = None,
) -> tuple[SphericalGaussian, Innovation]:
    """Keep the L largest singular directions of W̃ = [U Λ, G]; draws no random numbers."""
    return kernels.chosen(_plain_svd, _native)(belief, G, residual, threshold)


def orthogonal(
    belief: SphericalGaussian,
    G: Rows,
    residual: Array,
    threshold: float | None = None,
    key: Key | None = None,
) -> tuple[SphericalGaussian, Innovation]:
    """SVD-orth: each new column, in random order, may replace the least informative direction.

    Only the part of it that is orthogonal to the basis counts: O(P L) a column, and less
    accurate. Needs a key.
    """
    if key is None:
        raise ValueError(
            "key must be a PRNG key for projection=orthogonal (it visits outputs in random "
            "order), got None; pass key= to update, update_batch or run."
        )
    order = jax.random.permutation(key, rows.count(G))
    return kernels.chosen(_plain_orthogonal, _native)(belief, G, residual, threshold, order)


def _native(
    belief: SphericalGaussian,
    G: Rows,
    residual: Array,
    threshold: float | None,
    order: Array | None = None,
) -> tuple[SphericalGaussian, Innovation]:
    mean, scales, basis, weights, trust = kernels.spherical_condition(
        *belief, G, residual, threshold, order
    )
    after = SphericalGaussian(mean, belief.precision, scales, basis)
    return after, Innovation(weights, trust)


def _plain_svd(
    belief: SphericalGaussian, G: Rows, residual: Array, threshold: float | None
) -> tuple[SphericalGaussian, Innovation]:
    mean, trusted, innovation = _moved(belief, G, residual, threshold)
    W = belief.scales[:, None] * belief.basis
    V = directions(dlr.joint_gram(W, trusted))
    rotated = dlr.mix(W, trusted, V[: len(W)])
    # λ: as V is orthogonal, these are singular values
    scales = jnp.sqrt(total(jnp.sum(rotated**2, axis=1)))
    return SphericalGaussian(mean, belief.precision, scales, _unit(rotated, scales)), innovation


def _plain_orthogonal(
    belief: SphericalGaussian, G: Rows, residual: Array, threshold: float | None, order: Array
) -> tuple[SphericalGaussian, Innovation]:
    mean, trusted, innovation = _moved(belief, G, residual, threshold)

    def visit(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        scales, basis = carry
        column = rows.combine(trusted, jax.nn.one_hot(order[i], order.size, dtype=basis.dtype))
        v = column - total(basis @ column) @ basis
        length, whole = (jnp.sqrt(total(jnp.sum(w**2))) for w in (v, column))
        k = jnp.argmin(scales)
        replace = length > jnp.maximum(scales[k], _ROUNDING * whole)
        basis = basis.at[k].set(jnp.where(replace, _unit(v, length), basis[k]))
        return scales.at[k].set(jnp.where(replace, length, scales[k])), basis

    carry = belief.scales, belief.basis
    if belief.scales.size:
        carry = jax.lax.fori_loop(0, order.size, visit, carry)
    return SphericalGaussian(mean, belief.precision, *carry), innovation


def _moved(
    belief: SphericalGaussian, G: Rows, residual: Array, threshold: float | None
) -> tuple[Array, Rows, Innovation]:
    """The new mean, and G as it is trusted."""
    _, diag, W = spherical.to_dlr(belief)
    trusted, weights, innovation = dlr.gain(W, diag, G, residual, threshold)
    return belief.mean + dlr.mix(W, trusted, weights) / belief.precision, trusted, innovation


@described
def lofi_spherical(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    projection: Projection = svd,
    prior_precision: float = 10.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule | None = None,
    inflation: Inflation | None = None,
    line_search: LineSearch | None = DEFAULT,
    outlier_threshold: float | None = None,
) -> Estimator:
    """Spherical LO-FI (the paper's appendix of that name): N(μ, (η I + U Λ² Uᵀ)⁻¹).

    Predict:  μ ← γ μ,  η' = η/(γ² + q η),  λ² ← γ² λ² / ((γ² + q η)(γ² + q η + q λ²)).
    Update:   W̃ = [U Λ, Hᵀ Aᵀ],  μ ← μ + (η I + W̃ W̃ᵀ)⁻¹ Hᵀ R⁻¹ e,  (Λ, U) ← `projection` of W̃
    to rank L: `svd`, or `orthogonal`, which is cheaper and needs a key. What is dropped is
    forgotten: the data never touch η. For the steady-state assumption, pass
    `drift=bs.steady_state(decay=…, prior_precision=…)`. Other arguments as in `lofi`.

    >>> import jax, bayestream as bs
    >>> learner = bs.lofi_spherical(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> learner.init(jax.random.key(0)).belief.basis.shape
    (3, 33)
    """
    check_rank(rank, model.size)

    def start(mean: Array, eta: Array) -> SphericalGaussian:
        basis = jnp.zeros((rank, mean.size), mean.dtype)
        return SphericalGaussian(mean, eta, jnp.zeros(rank, mean.dtype), basis)

    def update(
        belief: SphericalGaussian,
        observation: Observation,
        threshold: float | None,
        key: Key | None,
    ) -> tuple[SphericalGaussian, Innovation]:
        return projection(belief, observation.rows, observation.residual, threshold, key)

    return gaussian_filter(
        model,
        likelihood,
        family=spherical,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=inflation,
        line_search=line_search,
        outlier_threshold=outlier_threshold,
    )


def _unit(rows: Array, lengths: Array) -> Array:
    """Rows over their lengths; a row of no length stays zero."""
    positive = lengths > 0
    lengths = jnp.where(positive, lengths, 1.0)
    return jnp.where(positive[..., None], rows / lengths[..., None], 0.0)
