"""From records to numbers and pictures: how well learners do along a stream."""

from bayestream.evaluation import evaluate, plots, summaries
from bayestream.evaluation.results import Results

__all__ = ["Results", "evaluate", "plots", "summaries"]
