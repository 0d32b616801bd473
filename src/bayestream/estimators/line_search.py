"""How far along a Kalman step to go: a step is a proposal, and what it is worth can be looked up.

The update solves the linearised form of: minimise φ(α) = ½ α² dᵀ Σ⁻¹ d − log p(y | x, μ + α d) at
α = 1. The exact φ is one forward pass away, so a search along d can only help; where a weak prior
meets classes, it decides between learning and divergence.

>>> import bayestream as bs
>>> model, likelihood = bs.models.mlp([2, 8, 3]), bs.likelihoods.categorical()
>>> searching = bs.lofi(model, likelihood)  # the default
>>> patient = bs.lofi(model, likelihood, line_search=bs.line_search.halving(times=20))
>>> as_in_the_paper = bs.lofi(model, likelihood, line_search=None)  # the full step, always
>>> bs.line_search.halving(times=0)
Traceback (most recent call last):
ValueError: times must be a whole number, 1 or above, got 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import check_whole
from bayestream.gaussians.innovation import Innovation, scaled
from bayestream.networks.linearize import Observation
from bayestream.types import Array, Likelihood, Model


class Objective(NamedTuple):
    """φ along a step."""

    at: Callable[[Array], Array]  # α → φ(α)
    start: Array  # φ(0)
    slope: Array  # φ'(0)


class LineSearch(NamedTuple):
    """A way to choose α; with `secant`, steps have at least the curvature their errors imply."""

    choose: Callable[[Objective], Array]
    secant: bool = True


def halving(*, times: int = 10, sufficient: float = 0.1, secant: bool = True) -> LineSearch:
    """The first of α = 1, ½, ¼, … that lowers φ enough; 0 after so many `times`.

    Enough is a fraction of what its slope promises (Armijo): φ(α) ≤ φ(0) + sufficient · α φ'(0).
    The step of a linear network with Gaussian noise keeps half of that promise, so it is taken.
    """
    check_whole("times", times, 1)
    least = 0.5**times

    def choose(phi: Objective) -> Array:
        # What rounding hides is not worth a search: of a good forecast there is little to gain.
        hidden = 16 * jnp.finfo(phi.start.dtype).eps * (1 + jnp.abs(phi.start))

        def disappoints(carry: tuple[Array, Array]) -> Array:
            alpha, value = carry
            enough = phi.start + sufficient * alpha * phi.slope + hidden
            return ~(value <= enough) & (alpha > 0)

        def halve(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            alpha = jnp.where(carry[0] > least, carry[0] / 2, 0.0)
            return alpha, phi.at(alpha)

        whole = jnp.ones_like(phi.start)
        first = (whole, phi.at(whole))

        def search() -> Array:
            return jax.lax.while_loop(disappoints, halve, first)[0]

        # A branch: what only a search needs, a compiler would make ready outside of the loop.
        return jax.lax.cond(disappoints(first), search, lambda: whole)

    return LineSearch(choose, secant)


DEFAULT = halving()


def objective(
    model: Model,
    likelihood: Likelihood,
    examples: tuple[Array, Array],  # X and Y
    path: Callable[[Array], Array],  # α → μ + α d
    observation: Observation,
    innovation: Innovation,
    trust: Array,  # in each example (N,)
    *,
    at_mean: bool,  # are the observation's outputs those at μ?
) -> Objective:
    """φ along the step that conditioning made; what it trusts less weighs less here too.

    With w = S⁻¹ v, Gᵀ d = v − w, so that dᵀ Σ⁻¹ d = dᵀ G v − |Gᵀ d|² = w · (v − w): no pass over
    memory.
    """
    xs, ys = examples
    columns = observation.residual.size // innovation.trust.size
    v = scaled(jnp.repeat(innovation.trust, columns), observation.residual)
    w = jnp.where(jnp.isnan(innovation.weights), v, innovation.weights)
    curvature, slope = w @ (v - w), -v @ (v - w)

    def loss(outputs: Array) -> Array:
        def one(eta: Array, y: Array, trust: Array) -> Array:
            known = jnp.where(trust > 0, y, jnp.zeros_like(y))
            return scaled(trust**2, -likelihood.log_density(eta, known))

        return jnp.sum(jax.vmap(one)(outputs, ys, trust))

    known = jnp.where(jnp.isfinite(xs), xs, 0.0)

    def at(alpha: Array) -> Array:
        params = path(alpha)
        outputs = jax.vmap(lambda x: model.apply(params, x))(known)
        return 0.5 * alpha**2 * curvature + loss(outputs)

    start = loss(observation.outputs) if at_mean else at(jnp.zeros_like(slope))
    return Objective(at, start, slope)
