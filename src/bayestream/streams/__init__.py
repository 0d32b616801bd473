"""Where examples come from."""

from bayestream.streams.synthetic import piecewise_regression, waves

__all__ = ["piecewise_regression", "waves"]
