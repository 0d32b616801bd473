"""Stream + estimator → records: the one place that orders predict → score → update."""

from bayestream.running import checkpoint
from bayestream.running.fleet import Fleet, FleetRecords, fleet
from bayestream.running.fleet_state import FleetState
from bayestream.running.ray_fleet import RayFleet, ray_fleet
from bayestream.running.refusals import RefusedError
from bayestream.running.resume import Checkpoints
from bayestream.running.run import Record, Records, run, run_together, step

__all__ = [
    "Checkpoints",
    "Fleet",
    "FleetRecords",
    "FleetState",
    "RayFleet",
    "Record",
    "Records",
    "RefusedError",
    "checkpoint",
    "fleet",
    "ray_fleet",
    "run",
    "run_together",
    "step",
]
