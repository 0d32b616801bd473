"""Several learners as one, weighed by how well each of them forecasts."""

from bayestream.averaging.averaged import AveragedState, averaged, grid
from bayestream.averaging.self_tuning import SETTINGS, self_tuning

__all__ = ["SETTINGS", "AveragedState", "averaged", "grid", "self_tuning"]
