"""What every posterior family can do, whatever it stores; the modules beside this one do it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from bayestream.networks.rows import Rows
from bayestream.types import Array, Key

Belief = TypeVar("Belief")


class Family(Protocol[Belief]):
    """The functions each module of `bayestream.gaussians` has, so that a module is a value."""

    def mean(self, belief: Belief) -> Array:
        """μ (P,)."""
        ...

    def move(self, belief: Belief, mean: Array) -> Belief:
        """The same belief about another mean."""
        ...

    def retreat(self, belief: Belief, origin: Array, fraction: Array) -> Belief:
        """Of the way that conditioning has just moved the mean from `origin`, keep a fraction."""
        ...

    def propagate(self, belief: Belief, decay: Array, drift: Array) -> Belief:
        """θ ← γ θ + N(0, q I)."""
        ...

    def temper(self, belief: Belief, power: Array) -> Belief:
        """Σ⁻¹ ← power · Σ⁻¹."""
        ...

    def add_precision(self, belief: Belief, amount: Array) -> Belief:
        """Σ⁻¹ ← Σ⁻¹ + amount · I."""
        ...

    def covariance_times(self, belief: Belief, vectors: Array) -> Array:
        """Σ v for v (P,) or for each row of (n, P)."""
        ...

    def covariance_between(self, belief: Belief, J: Array) -> Array:
        """J Σ Jᵀ for rows J (n, P)."""
        ...

    def covariance_of(self, belief: Belief, G: Rows) -> Array:
        """Each example's own G Σ Gᵀ: (N, K, K)."""
        ...

    def variance(self, belief: Belief) -> Array:
        """The diagonal of Σ (P,)."""
        ...

    def log_determinant(self, belief: Belief) -> Array:
        """Log |Σ|."""
        ...

    def log_density(self, belief: Belief, params: Array) -> Array:
        """Log N(params | μ, Σ)."""
        ...

    def kl(self, belief: Belief, other: Belief) -> Array:
        """KL(belief ‖ other)."""
        ...

    def sample(self, belief: Belief, key: Key) -> Array:
        """One exact draw (P,)."""
        ...
