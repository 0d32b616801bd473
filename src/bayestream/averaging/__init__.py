"""Several learners as one, weighed by how well each of them forecasts."""

from bayestream.averaging.averaged import AveragedState, averaged, grid

__all__ = ["AveragedState", "averaged", "grid"]
