"""Decisions from a belief: which arm to pull, which label to ask for, where to evaluate next."""

from bayestream.decisions import (
    acquisitions,
    active,
    bandits,
    benchmark_functions,
    logged,
    optimise,
    policies,
    queries,
    spaces,
    surrogates,
)
from bayestream.decisions.active import Asked
from bayestream.decisions.bandits import Bandit, Plays
from bayestream.decisions.logged import Log, Replay
from bayestream.decisions.optimise import Optimiser, OptimiserState
from bayestream.decisions.policies import Policy
from bayestream.decisions.queries import Query

__all__ = [
    "Asked",
    "Bandit",
    "Log",
    "Optimiser",
    "OptimiserState",
    "Plays",
    "Policy",
    "Query",
    "Replay",
    "acquisitions",
    "active",
    "bandits",
    "benchmark_functions",
    "logged",
    "optimise",
    "policies",
    "queries",
    "spaces",
    "surrogates",
]
