"""Hyper-parameters that make a learner forecast well, on anything but the test set."""

from bayestream.tuning import tune

__all__ = ["tune"]
