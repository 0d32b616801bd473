"""Stream + estimator → records: the one place that orders predict → score → update."""

from bayestream.running import checkpoint
from bayestream.running.refusals import RefusedError
from bayestream.running.resume import Checkpoints
from bayestream.running.run import Record, Records, run, run_together, step

__all__ = [
    "Checkpoints",
    "Record",
    "Records",
    "RefusedError",
    "checkpoint",
    "run",
    "run_together",
    "step",
]
