"""Several learners as one, weighed by how well each of them forecasts."""

from bayestream.averaging.averaged import AveragedState, averaged, grid
from bayestream.averaging.self_tuning import measured, self_tuning

__all__ = ["AveragedState", "averaged", "grid", "measured", "self_tuning"]
