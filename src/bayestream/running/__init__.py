"""Stream + estimator → records: the one place that orders predict → score → update."""

from bayestream.running.refusals import RefusedError
from bayestream.running.run import Record, Records, run, run_together, step

__all__ = ["Record", "Records", "RefusedError", "run", "run_together", "step"]
