"""Where examples come from."""

from bayestream.streams.synthetic import piecewise_regression

__all__ = ["piecewise_regression"]
