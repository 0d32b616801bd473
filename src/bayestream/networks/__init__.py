"""A network as a function of one flat vector of weights, and its derivative as rows a ⊗ δ."""

from bayestream.networks import linearize, models, rows

__all__ = ["linearize", "models", "rows"]
