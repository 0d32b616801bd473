"""Contextual bandits: only the reward of the arm that was pulled is seen."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_array, check_non_negative, check_whole
from bayestream.decisions.policies import Policy
from bayestream.estimators.guard import check_state
from bayestream.evaluation.results import Results
from bayestream.running.refusals import check_most
from bayestream.types import Array, Estimator, Key, State, Stream


class Bandit(NamedTuple):
    """What is offered at each of T steps, and what each of A arms would pay."""

    contexts: Any  # x (T, …)
    rewards: Any  # (T, A): paid if that arm is pulled; of NaN nothing is paid, and nothing learnt
    expected: Any  # (T, A): their expectations, for the regret


class Plays(NamedTuple):
    """How a game went, step after step."""

    arms: Array  # (T,)
    rewards: Array  # (T,)
    regrets: Array  # (T,): the best arm's expected reward, less that of the arm that was pulled


def of_labels(stream: Stream, *, arms: int) -> Bandit:
    """A labelled stream as a bandit: an arm for each class, which pays 1 if it is the label's.

    >>> from bayestream.types import Example
    >>> bandit = of_labels(Stream(Example(x=np.zeros((2, 3)), y=np.array([1, 0]))), arms=2)
    >>> bandit.rewards.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    labels = np.asarray(stream.examples.y)
    if labels.ndim != 1 or not np.all((labels >= 0) & (labels < arms) & (labels % 1 == 0)):
        raise ValueError(f"stream must have class numbers below {arms} as labels.")
    rewards = np.eye(arms)[labels.astype(int)]
    return Bandit(np.asarray(stream.examples.x), rewards, rewards)


def linear(
    seed: int, *, steps: int = 2000, inputs: int = 5, arms: int = 4, noise: float = 0.1
) -> Bandit:
    """Rewards that are linear in the context, with Gaussian noise of that variance.

    >>> linear(0, steps=7).rewards.shape
    (7, 4)
    """
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(inputs, arms)) / np.sqrt(inputs)
    contexts = rng.normal(size=(steps, inputs))
    return _noisy(rng, contexts, contexts @ weights, noise)


def nonlinear(
    seed: int,
    *,
    steps: int = 4000,
    inputs: int = 5,
    arms: int = 4,
    noise: float = 0.1,
    changes: int = 0,
) -> Bandit:
    """Rewards that are random waves of the context; `changes` times, the arms change places.

    >>> nonlinear(0, steps=7, changes=1).expected.shape
    (7, 4)
    """
    check_whole("changes", changes, 0)
    rng = np.random.default_rng(seed)
    waves = rng.normal(size=(inputs, arms, 8))
    phases, heights = rng.uniform(0, 2 * np.pi, (arms, 8)), rng.normal(size=(arms, 8)) / 2
    contexts = rng.normal(size=(steps, inputs))
    each = np.cos(np.einsum("ti,iaw->taw", contexts, waves) + phases)
    expected = np.einsum("taw,aw->ta", each, heights)
    stretch = steps // (changes + 1)
    for change in range(1, changes + 1):
        order = rng.permutation(arms)
        expected[change * stretch :] = expected[change * stretch :][:, order]
    return _noisy(rng, contexts, expected, noise)


def with_arms(bandit: Bandit, features: Any) -> Bandit:
    """The same bandit, but a context has a row for each arm: itself, then the arm's features.

    For a network that has the arm as an input: `bs.models.of_each`.

    Args:
        bandit: with contexts that are vectors.
        features: (A, F), what is known of each arm; `np.eye(A)` where that is its number alone.

    >>> import bayestream as bs
    >>> bandit = with_arms(linear(0, steps=50, inputs=5, arms=4), np.eye(4))
    >>> bandit.contexts.shape
    (50, 4, 9)
    >>> learner = bs.lofi(bs.models.of_each(bs.models.mlp([9, 8, 1]), count=4),
    ...                   bs.likelihoods.gaussian(0.1))
    >>> _, plays = play(learner, learner.init(jax.random.key(0)), bandit,
    ...                 policy=bs.policies.thompson(), key=jax.random.key(1))
    """
    contexts = np.asarray(bandit.contexts)
    count, arms = np.shape(bandit.rewards)
    check_array("contexts", contexts, [(count, *contexts.shape[1:2])])
    features = np.asarray(features)
    check_array("features", features, [(arms, *features.shape[1:2])])
    rows = np.broadcast_to(contexts[:, None], (count, arms, contexts.shape[1]))
    shared = np.broadcast_to(features, (count, *features.shape))
    return bandit._replace(contexts=np.concatenate([rows, shared], axis=2))


def _noisy(rng: np.random.Generator, contexts: NDArray[Any], expected: Any, noise: float) -> Bandit:
    check_non_negative("noise", noise)
    rewards = expected + np.sqrt(noise) * rng.normal(size=expected.shape)
    return Bandit(contexts, rewards, expected)


def play(
    learner: Estimator,
    state: State,
    bandit: Bandit,
    *,
    policy: Policy,
    key: Key,
    warm_up: int = 0,
    delay: int = 0,
) -> tuple[State, Plays]:
    """Choose an arm, get its reward, learn from it, for every context.

    Args:
        learner: with an output for each arm; of the others' rewards it is told NaN, so that
            `bs.likelihoods.one_seen` makes its steps cheaper.
        state: from `learner.init`, or of an earlier game.
        bandit: from `of_labels`, `linear`, `nonlinear`, or your own numbers.
        policy: from `bs.policies`, such as `bs.policies.thompson()`.
        key: of all that is random in the policy and the learner.
        warm_up: for so many steps, the arms are pulled in turn.
        delay: how many steps later a reward is learnt from.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([5, 4]), bs.likelihoods.gaussian(0.1), rank=4)
    >>> _, plays = bs.bandits.play(learner, learner.init(jax.random.key(0)), bs.bandits.linear(0),
    ...                            policy=bs.policies.thompson(), key=jax.random.key(1))
    >>> bool(plays.regrets[-500:].mean() < plays.regrets[:50].mean())
    True
    """
    check_state(learner, state)
    _check(learner, bandit, np.shape(bandit.contexts)[:1])
    game = _game(learner, policy, warm_up, delay)
    after, plays = game(state, jax.tree.map(jnp.asarray, bandit), key)
    _say_refused(learner.refused(after) - learner.refused(state), len(bandit.rewards))
    return after, plays


def trials(
    learner: Estimator,
    bandits: Bandit,
    *,
    policy: Policy,
    key: Key,
    method: str,
    warm_up: int = 0,
    delay: int = 0,
) -> Results:
    """Several games at once, one for each bandit of a stack, under vmap.

    Of each, the running totals of reward and regret: metrics "reward" and "regret".
    """
    _check(learner, bandits, np.shape(bandits.contexts)[:2])
    count = len(bandits.rewards)
    keys = jax.random.split(key, (2, count))
    game = jax.vmap(_game(learner, policy, warm_up, delay))
    stacked = jax.tree.map(jnp.asarray, bandits)
    states, plays = game(jax.vmap(learner.init)(keys[0]), stacked, keys[1])
    refused = jnp.sum(jax.vmap(learner.refused)(states))
    _say_refused(refused, count * np.shape(bandits.rewards)[1])
    each = [jax.tree.map(lambda values, i=trial: values[i], plays) for trial in range(count)]
    return Results.joined([totals(method, trial, own) for trial, own in enumerate(each)])


def totals(method: str, trial: int, plays: Plays) -> Results:
    """The running totals of reward and regret in one game."""
    return Results.joined(
        [
            Results.of(
                method=method,
                metric=metric,
                summary="total",
                trial=trial,
                step=np.arange(1, len(values) + 1),
                task=0,
                value=np.cumsum(np.asarray(values, np.float64)),
            )
            for metric, values in (("reward", plays.rewards), ("regret", plays.regrets))
        ]
    )


def _say_refused(refused: Array, updates: int) -> None:
    """Warn of updates that would not have been finite; if they were most, that is an error."""
    if count := int(refused):
        check_most(count, updates)
        said = f"{count} of {updates} updates would not have been finite and were refused."
        warnings.warn(said, RuntimeWarning, stacklevel=3)


def _check(learner: Estimator, bandit: Bandit, leading: tuple[int, ...]) -> None:
    """Refuse what does not fit together, of one game or of a stack of them."""
    arms = np.shape(bandit.rewards)[len(leading) :]
    if len(arms) == 1 and arms[0] != learner.model.outputs:
        raise ValueError(
            f"learner must have an output for each of {arms[0]} arms, got {learner.model.outputs}."
        )
    check_array("contexts", bandit.contexts, [(*leading, *learner.model.inputs)])
    for name in ("rewards", "expected"):
        check_array(name, getattr(bandit, name), [(*leading, learner.model.outputs)])


@lru_cache(maxsize=32)
def _game(learner: Estimator, policy: Policy, warm_up: int, delay: int) -> Any:
    check_whole("warm_up", warm_up, 0)
    check_whole("delay", delay, 0)
    arms = learner.model.outputs

    def step(carry: Any, now: tuple[Array, Bandit, Key]) -> tuple[Any, Plays]:
        state, waiting = carry
        number, (x, rewards, expected), key = now
        key_choice, key_update = jax.random.split(key)
        state = learner.predict(state)
        wanted = policy(learner, state, x, key_choice, number)
        arm = jnp.where(number < warm_up, number % arms, jnp.argmax(wanted))
        y = jnp.where(jnp.arange(arms) == arm, rewards, jnp.nan)
        told, waiting = _queued(waiting, (x, y))
        state = learner.update(state, *told, key_update)
        regret = jnp.max(expected) - expected[arm]
        paid = jnp.where(jnp.isnan(rewards[arm]), 0.0, rewards[arm])
        return (state, waiting), Plays(arm, paid, regret)

    def game(state: State, bandit: Bandit, key: Key) -> tuple[State, Plays]:
        count = len(bandit.rewards)
        nothing = (
            jnp.zeros((delay, *bandit.contexts.shape[1:]), bandit.contexts.dtype),
            jnp.full((delay, arms), jnp.nan, bandit.rewards.dtype),
        )
        each = (jnp.arange(count), bandit, jax.random.split(key, count))
        (state, _), plays = jax.lax.scan(step, (state, nothing), each)
        return state, plays

    return jax.jit(game)


def _queued(waiting: Any, new: Any) -> tuple[Any, Any]:
    """What has waited longest, and the queue after it has left and `new` has joined."""
    joined = jax.tree.map(lambda q, a: jnp.concatenate([q, a[None]]), waiting, new)
    first = jax.tree.map(lambda q: q[0], joined)
    return first, jax.tree.map(lambda q: q[1:], joined)
