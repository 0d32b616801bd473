"""Decisions from a belief: which arm to pull, where to evaluate next."""

from bayestream.decisions import (
    acquisitions,
    bandits,
    benchmark_functions,
    logged,
    optimise,
    policies,
    spaces,
    surrogates,
)
from bayestream.decisions.bandits import Bandit, Plays
from bayestream.decisions.logged import Log, Replay
from bayestream.decisions.optimise import Optimiser, OptimiserState
from bayestream.decisions.policies import Policy

__all__ = [
    "Bandit",
    "Log",
    "Optimiser",
    "OptimiserState",
    "Plays",
    "Policy",
    "Replay",
    "acquisitions",
    "bandits",
    "benchmark_functions",
    "logged",
    "optimise",
    "policies",
    "spaces",
    "surrogates",
]
