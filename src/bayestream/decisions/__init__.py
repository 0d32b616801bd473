"""Decisions from a belief: which arm to pull."""

from bayestream.decisions import bandits, policies
from bayestream.decisions.bandits import Bandit, Plays
from bayestream.decisions.policies import Policy

__all__ = ["Bandit", "Plays", "Policy", "bandits", "policies"]
