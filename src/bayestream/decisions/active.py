"""Active learning: the learner chooses the labels it is told, from a pool or as inputs pass."""

from bayestream.decisions.learning_curves import labels_needed, learning_curves
from bayestream.decisions.passing import Asked, is_wanted, stream
from bayestream.decisions.pools import ask, pool

__all__ = ["Asked", "ask", "is_wanted", "labels_needed", "learning_curves", "pool", "stream"]
