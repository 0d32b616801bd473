"""Any likelihood as one that may change along the stream."""

from __future__ import annotations

from bayestream.checks import check_made_by
from bayestream.types import EvolvingLikelihood, Likelihood


def evolving(likelihood: Likelihood | EvolvingLikelihood) -> EvolvingLikelihood:
    """Any likelihood as one that may change along the stream; a fixed one carries nothing."""
    if isinstance(likelihood, EvolvingLikelihood):
        return likelihood
    check_made_by("likelihood", likelihood, Likelihood, "bayestream.likelihoods (gaussian, …)")
    return EvolvingLikelihood(
        init=lambda outputs, dtype: (),
        at=lambda carry, step: likelihood,
        adapt=lambda carry, eta, y, trust: carry,
    )
