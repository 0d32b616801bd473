"""A diagonal plus low-rank belief whose tempering and dynamics wait for the next update.

Tempering, adding to the precision, decay and drift are four numbers until the arrays are
visited anyway: predict costs nothing, and the update applies them in the passes it makes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.gaussians import dense, dlr, kernels
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.innovation import Innovation
from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.networks.shards import own, total
from bayestream.types import Array, Key


class Pending(NamedTuple):
    """First Σ⁻¹ ← power · Σ⁻¹ + added · I, then θ ← decay · θ + N(0, drift · I)."""

    power: Array
    added: Array
    decay: Array
    drift: Array


_NOTHING = (1.0, 0.0, 1.0, 0.0)


class LazyDLR(NamedTuple):
    """A belief as of the last conditioning, and what has happened to it since."""

    base: DLRGaussian
    pending: Pending | None  # None where nothing ever happens between updates
    gram: Array | None  # there, W Wᵀ (L, L): the next update need not sum it again


def at_rest(base: DLRGaussian, *, ever_moves: bool) -> LazyDLR:
    """A belief to which nothing has happened yet, and to which something may or never will."""
    if not ever_moves:
        return LazyDLR(base, None, total(base.factor @ base.factor.T))
    # Four arrays, though two are equal: a state whose buffers are shared cannot be donated.
    pending = Pending(*(jnp.full((), value, base.mean.dtype) for value in _NOTHING))
    return LazyDLR(base, pending, None)


def settle(belief: LazyDLR) -> DLRGaussian:
    """The belief with everything applied."""
    if belief.pending is None:
        return belief.base
    return dlr.propagate(_tempered(belief), belief.pending.decay, belief.pending.drift)


def condition(
    belief: LazyDLR, G: Rows, residual: Array, threshold: float | None = None
) -> tuple[LazyDLR, Innovation]:
    """Settle, then condition on unit-noise observations, keeping the rank; see `dlr.condition`."""
    return kernels.chosen(_plain, _native)(belief, G, residual, threshold)


def _plain(
    belief: LazyDLR, G: Rows, residual: Array, threshold: float | None
) -> tuple[LazyDLR, Innovation]:
    conditioned, innovation = dlr.condition(settle(belief), G, residual, threshold)
    return at_rest(conditioned, ever_moves=belief.pending is not None), innovation


def _native(
    belief: LazyDLR, G: Rows, residual: Array, threshold: float | None
) -> tuple[LazyDLR, Innovation]:
    waiting = belief.pending or _NOTHING
    *arrays, gram, weights, trust = kernels.dlr_condition(
        *belief.base, belief.gram, waiting, G, residual, threshold
    )
    base, innovation = DLRGaussian(*arrays), Innovation(weights, trust)
    if belief.pending is None:
        return LazyDLR(base, None, gram), innovation
    # What nothing was learnt from was not visited either: what waits goes on waiting.
    refused = jnp.any(jnp.isnan(weights))
    pairs = zip(belief.pending, _NOTHING, strict=True)
    pending = Pending(*(jnp.where(refused, waits, nothing) for waits, nothing in pairs))
    return LazyDLR(base, pending, None), innovation


def mean(belief: LazyDLR) -> Array:
    """μ."""
    return belief.base.mean if belief.pending is None else belief.pending.decay * belief.base.mean


def move(belief: LazyDLR, mean: Array) -> LazyDLR:
    """The same belief about another mean."""
    still = _still(belief)
    return still._replace(base=still.base._replace(mean=mean))


def retreat(belief: LazyDLR, origin: Array, fraction: Array) -> LazyDLR:
    """Of the way its mean has just come from `origin`, keep a fraction; nothing waits by then."""
    return belief._replace(base=dlr.retreat(belief.base, origin, fraction))


def propagate(belief: LazyDLR, decay: Array, drift: Array) -> LazyDLR:
    """θ ← γ θ + N(0, q I): two steps of the dynamics are one with other numbers."""
    pending = _pending(belief)
    pending = pending._replace(decay=decay * pending.decay, drift=decay**2 * pending.drift + drift)
    return belief._replace(pending=pending)


def temper(belief: LazyDLR, power: Array) -> LazyDLR:
    """Σ⁻¹ ← power · Σ⁻¹, also of what drift has added to Σ."""
    pending = _pending(belief)
    return belief._replace(
        pending=Pending(
            power * pending.power, power * pending.added, pending.decay, pending.drift / power
        )
    )


def add_precision(belief: LazyDLR, amount: Array) -> LazyDLR:
    """Σ⁻¹ ← Σ⁻¹ + amount · I."""
    still = _still(belief)
    pending = _pending(still)
    return still._replace(pending=pending._replace(added=pending.added + amount))


def covariance_times(belief: LazyDLR, vectors: Array) -> Array:
    """Σ v = γ² Σ₁ v + q v, for v (P,) or for each row of (n, P)."""
    if belief.pending is None:
        return dlr.covariance_times(belief.base, vectors)
    spread = dlr.covariance_times(_tempered(belief), vectors)
    return belief.pending.decay**2 * spread + belief.pending.drift * vectors


def covariance_between(belief: LazyDLR, J: Array) -> Array:
    """J Σ Jᵀ = γ² J Σ₁ Jᵀ + q J Jᵀ for rows J (n, P)."""
    if belief.pending is None:
        return dlr.covariance_between(belief.base, J)
    spread = dlr.covariance_between(_tempered(belief), J)
    return belief.pending.decay**2 * spread + belief.pending.drift * total(J @ J.T)


def covariance_of(belief: LazyDLR, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K)."""
    alone = len(G.deltas[0]) == 1  # of many, the kernel would make the sums over W again for each
    return (kernels.chosen(_plain_spread, _native_spread) if alone else _plain_spread)(belief, G)


def _native_spread(belief: LazyDLR, G: Rows) -> Array:
    _, diag, factor = belief.base
    return kernels.dlr_spread(diag, factor, belief.pending or _NOTHING, G)[None]


def _plain_spread(belief: LazyDLR, G: Rows) -> Array:
    if belief.pending is None:
        return dlr.covariance_of(belief.base, G)
    # Tempered, Σ is that of Υ + added/power and W as it is, over the power: W is read, not written.
    power, added, decay, drift = belief.pending
    before, scale = dlr.add_precision(belief.base, added / power), decay**2 / power
    spread = total(rows.gram_of_each(G, scale / before.diag + drift))
    return spread - scale * dlr.narrowing_of(before, G)


def variance(belief: LazyDLR) -> Array:
    """The diagonal of Σ."""
    return dlr.variance(settle(belief))


def log_determinant(belief: LazyDLR) -> Array:
    """Log |Σ|."""
    return dlr.log_determinant(settle(belief))


def log_density(belief: LazyDLR, params: Array) -> Array:
    """Log N(params | μ, Σ)."""
    return dlr.log_density(settle(belief), params)


def kl(belief: LazyDLR, other: LazyDLR) -> Array:
    """KL(belief ‖ other)."""
    return dlr.kl(settle(belief), settle(other))


def sample(belief: LazyDLR, key: Key) -> Array:
    """One exact draw in O(P L): γ θ₁ + √q ε."""
    if belief.pending is None:
        return dlr.sample(belief.base, key)
    key_base, key_drift = jax.random.split(key)
    base = belief.base.mean
    noise = jax.random.normal(own(key_drift), base.shape, base.dtype)
    draw = dlr.sample(_tempered(belief), key_base)
    return belief.pending.decay * draw + jnp.sqrt(belief.pending.drift) * noise


def to_dense(belief: LazyDLR) -> dense.DenseGaussian:
    """The same belief with its P×P covariance."""
    return dlr.to_dense(settle(belief))


def _tempered(belief: LazyDLR) -> DLRGaussian:
    """The belief before its dynamics."""
    pending = _pending(belief)
    return dlr.add_precision(dlr.temper(belief.base, pending.power), pending.added)


def _still(belief: LazyDLR) -> LazyDLR:
    """The same belief with no dynamics waiting; after an update there are none, so no work."""
    pending = _pending(belief)
    moved = (pending.decay != 1) | (pending.drift != 0)
    return jax.lax.cond(moved, lambda b: at_rest(settle(b), ever_moves=True), lambda b: b, belief)


def _pending(belief: LazyDLR) -> Pending:
    if belief.pending is None:
        raise ValueError("this belief was made with ever_moves=False; nothing may wait for it.")
    return belief.pending
