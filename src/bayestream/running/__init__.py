"""Stream + estimator → records: the one place that orders predict → score → update."""

from bayestream.running import checkpoint
from bayestream.running.fleet import Fleet, FleetRecords, fleet
from bayestream.running.fleet_state import FleetState
from bayestream.running.refusals import RefusedError
from bayestream.running.resume import Checkpoints
from bayestream.running.run import Record, Records, run, run_together, step

__all__ = [
    "Checkpoints",
    "Fleet",
    "FleetRecords",
    "FleetState",
    "Record",
    "Records",
    "RefusedError",
    "checkpoint",
    "fleet",
    "run",
    "run_together",
    "step",
]
