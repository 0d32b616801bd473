"""Decisions from a belief: which arm to pull."""

from bayestream.decisions import bandits, logged, policies
from bayestream.decisions.bandits import Bandit, Plays
from bayestream.decisions.logged import Log, Replay
from bayestream.decisions.policies import Policy

__all__ = ["Bandit", "Log", "Plays", "Policy", "Replay", "bandits", "logged", "policies"]
