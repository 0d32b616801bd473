"""Any likelihood as one that may change along the stream."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from bayestream.checks import check_made_by
from bayestream.types import EvolvingLikelihood, Likelihood


@jax.tree_util.register_static
@dataclass(frozen=True)
class Kind:
    """What a likelihood that carries nothing leaves in a state: no numbers, but its name."""

    name: str


def evolving(likelihood: Likelihood | EvolvingLikelihood) -> EvolvingLikelihood:
    """Any likelihood as one that may change along the stream; a fixed one carries nothing."""
    if isinstance(likelihood, EvolvingLikelihood):
        return likelihood
    check_made_by("likelihood", likelihood, Likelihood, "bayestream.likelihoods (gaussian, …)")
    return EvolvingLikelihood(
        init=lambda outputs, dtype: Kind(likelihood.name),
        at=lambda carry, step: likelihood,
        adapt=lambda carry, eta, y, trust, kept=1.0: carry,
    )
