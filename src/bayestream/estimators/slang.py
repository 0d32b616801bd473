"""SLANG: stochastic natural gradients, and a randomised eigen-solver for the precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import check_fraction, check_positive, check_rank, check_whole
from bayestream.estimators import expectations
from bayestream.estimators.description import described
from bayestream.estimators.filter import check_examples, one_by_one
from bayestream.estimators.guard import guarded
from bayestream.estimators.spaces import Range, Space
from bayestream.gaussians import dlr
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.likelihoods import evolving
from bayestream.networks import rows
from bayestream.types import Array, Estimator, EvolvingLikelihood, Key, Likelihood, Model

_EXTRA = 5  # directions the solver tries beyond those it keeps
_POWERS = 2  # times it multiplies by the matrix to tell large eigenvalues from small


class SlangState(NamedTuple):
    """All that SLANG carries from one step to the next."""

    belief: DLRGaussian
    start: Array  # μ₀ (P,), the mean of the prior
    step: Array
    noise: Any  # what an evolving likelihood carries; the `Kind` of a fixed one
    refused: Array  # how many updates would have made it infinite, and were not made


SLANG_SPACE: Space = {
    "prior_precision": Range(1e-2, 1e3),
    "learning_rate": Range(1e-3, 1.0),
    "precision_rate": Range(1e-3, 1.0),
}


@described
def slang(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    prior_precision: float = 10.0,
    learning_rate: float = 0.1,
    precision_rate: float = 0.1,
    examples: int = 1000,
    samples: int = 1,
) -> Estimator:
    """Stochastic low-rank approximate natural gradient (Mishkin et al. 2018, arXiv:1811.04504).

    With ĝ and Ĝ the averages over draws θ ~ N(μ, Σ) of g = ∇ log p and of g gᵀ:
    Σ⁻¹ ← (1 − β) Σ⁻¹ + β (N Ĝ + η₀ I), its low-rank part cut to L by a randomised eigen-solver and
    its diagonal kept;  μ ← μ + α Σ (N ĝ − η₀ (μ − μ₀)). Needs a key.

    Args:
        model: the network.
        likelihood: what its output means.
        rank: L.
        prior_precision: η₀.
        learning_rate: α.
        precision_rate: β, from 0 to 1.
        examples: N, how many examples the posterior speaks for.
        samples: draws from the belief an update.

    >>> import jax, bayestream as bs
    >>> learner = bs.slang(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> state = jax.jit(learner.update)(state, jnp.ones(2), jnp.ones(1), jax.random.key(1))
    >>> state.belief.factor.shape
    (3, 33)
    """
    check_rank(rank, model.size)
    check_positive("prior_precision", prior_precision)
    check_positive("learning_rate", learning_rate)
    check_fraction("precision_rate", precision_rate)
    check_whole("examples", examples, 1)
    check_whole("samples", samples, 1)
    observations = evolving(likelihood)
    expect = expectations.empirical_fisher(samples=samples)

    def init(key: Key) -> SlangState:
        mean = model.init(key)
        belief = dlr.start(mean, jnp.asarray(prior_precision, mean.dtype), rank)
        noise = observations.init(model.outputs, mean.dtype)
        step, refused = jnp.zeros((2,), jnp.int32)
        return SlangState(belief, jnp.array(mean), step, noise, refused)

    def likelihood_now(state: SlangState) -> Likelihood:
        return observations.at(state.noise, jnp.maximum(state.step - 1, 0))

    def update_batch(state: SlangState, xs: Array, ys: Array, key: Key | None = None) -> SlangState:
        current, belief = likelihood_now(state), state.belief
        xs, ys = check_examples(model, current, xs, ys, belief.mean.dtype)
        for_draws, for_solver = jax.random.split(expectations.needed(key))
        seen = expect(dlr, belief, model, current, xs, ys, for_draws)
        count = jnp.maximum(jnp.sum(seen.observed), 1).astype(belief.mean.dtype)
        gradients = rows.to_dense(seen.rows)  # of each draw and example, times 1/√draws
        per_example = examples / count
        W = jnp.concatenate(
            [
                jnp.sqrt(1 - precision_rate) * belief.factor,
                jnp.sqrt(precision_rate * per_example) * gradients,
            ]
        )
        factor = _largest(W, rank, for_solver)
        dropped = jnp.sum(W**2, axis=0) - jnp.sum(factor**2, axis=0)
        diag = (1 - precision_rate) * belief.diag + precision_rate * prior_precision
        new = DLRGaussian(belief.mean, diag + jnp.maximum(dropped, 0.0), factor)
        gradient = per_example * rows.combine(seen.rows, seen.residual)
        gradient -= prior_precision * (belief.mean - state.start)
        new = new._replace(mean=belief.mean + learning_rate * dlr.covariance_times(new, gradient))
        anything = jnp.any(seen.observed)
        kept = jax.tree.map(lambda a, b: jnp.where(anything, a, b), new, belief)
        noise = observations.adapt(state.noise, seen.outputs, ys, seen.observed)
        return state._replace(belief=kept, noise=noise)

    def sample(state: SlangState, key: Key, count: int) -> Array:
        keys = jax.random.split(key, count)
        return jax.vmap(lambda k: dlr.sample(state.belief, k))(keys)

    guarded_update = guarded(update_batch, lambda state: state)
    return Estimator(
        model=model,
        likelihood=likelihood_now,
        init=jax.jit(init),
        predict=lambda state: state._replace(step=state.step + 1),
        update=one_by_one(guarded_update),
        update_batch=guarded_update,
        mean=lambda state: state.belief.mean,
        covariance_between=lambda state, J: dlr.covariance_between(state.belief, J),
        covariance_of=lambda state, G: dlr.covariance_of(state.belief, G),
        sample=sample,
        refused=lambda state: state.refused,
    )


def _largest(W: Array, rank: int, key: Key) -> Array:
    """The `rank` largest eigen-directions of Wᵀ W, scaled, as rows: Halko, Martinsson & Tropp."""
    width = min(rank + _EXTRA, W.shape[1])
    probe = jax.random.normal(key, (W.shape[1], width), W.dtype)
    for _ in range(_POWERS):
        probe, _ = jnp.linalg.qr(W.T @ (W @ probe))
    values, vectors = jnp.linalg.eigh((W @ probe).T @ (W @ probe))
    scales = jnp.sqrt(jnp.maximum(values[::-1][:rank], 0.0))
    return scales[:, None] * (vectors[:, ::-1][:, :rank].T @ probe.T)
