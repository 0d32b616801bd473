"""The paper's bandit: which digit is it, told only whether the answer was right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from bayestream import likelihoods, streams
from bayestream.decisions import bandits, policies
from bayestream.decisions.bandits import Bandit, Plays
from bayestream.decisions.policies import Policy
from bayestream.estimators.lofi import lofi
from bayestream.estimators.replay_sgd import replay_sgd
from bayestream.networks import models
from bayestream.types import Estimator, Model

ARMS, STEPS = 10, 8000
MEMORIES = (1, 10, 20, 30)  # the rank, or how many examples are replayed
NOISE, PRIOR = float(np.exp(-10)), float(np.exp(8))  # the research code's R and 1/variance


class Line(NamedTuple):
    """A way to learn and to choose."""

    learner: Callable[[Model, int], Estimator]  # (network, memory) → learner
    policy: Policy


def _lofi(model: Model, memory: int) -> Estimator:
    noise = likelihoods.one_seen(likelihoods.gaussian(NOISE))
    return lofi(model, noise, rank=memory, prior_precision=PRIOR, line_search=None)


def _replay(model: Model, memory: int) -> Estimator:
    optimiser = optax.adam(float(np.exp(-8)))
    noise = likelihoods.one_seen(likelihoods.gaussian(1.0))
    return replay_sgd(model, noise, buffer=memory, optimiser=optimiser)


LINES: dict[str, Line] = {
    "LO-FI, Thompson": Line(_lofi, policies.thompson()),
    "LO-FI, Thompson of outputs": Line(_lofi, policies.thompson_of_outputs()),
    "LO-FI, ε-greedy": Line(_lofi, policies.epsilon_greedy(0.1)),
    "replay SGD, ε-greedy": Line(_replay, policies.epsilon_greedy(0.1)),
}


def game(seed: int, *, steps: int = STEPS, permuted: bool = False) -> Bandit:
    """MNIST in an order drawn from `seed`; if permuted, halfway the arms change places."""
    offered = bandits.of_labels(streams.mnist().shuffle(seed).take(steps), arms=ARMS)
    if not permuted:
        return offered
    order = np.random.default_rng(seed).permutation(ARMS)
    later = np.arange(steps)[:, None] >= steps // 2
    rewards = np.where(later, offered.rewards[:, order], offered.rewards)
    return Bandit(offered.contexts, rewards, rewards)


def trial(
    line: str, memory: int, seed: int, *, steps: int = STEPS, permuted: bool = False
) -> tuple[Plays, float]:
    """How one game went, and its seconds a step, compilation not counted."""
    model = models.mlp([784, 200, ARMS], activation=jax.nn.elu)
    learner = LINES[line].learner(model, memory)
    key_start, key_play = jax.random.split(jax.random.key(seed))
    state = learner.init(key_start)
    offered = game(seed, steps=steps, permuted=permuted)

    def play(part: Bandit) -> Any:
        return jax.block_until_ready(
            bandits.play(learner, state, part, policy=LINES[line].policy, key=key_play)
        )

    begin = time.perf_counter()
    _, plays = play(offered)
    return jax.tree.map(np.asarray, plays), (time.perf_counter() - begin) / steps
