"""River's bandit interface, `pull` and `update`, over any learner and policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream import likelihoods
from bayestream.checks import check_whole
from bayestream.decisions import policies
from bayestream.decisions.policies import Policy
from bayestream.estimators.lofi import lofi
from bayestream.networks import models
from bayestream.types import Array, Estimator, Key, State

try:
    from river import bandit
except ImportError as error:
    raise ImportError(
        "bayestream.facades.river_bandit needs river: pip install 'bayestream[river]'."
    ) from error

Context = Mapping[Hashable, float] | None
Make = Callable[[int, int], Estimator]  # (how many features, how many arms) → a learner
DEFAULT = policies.thompson_of_outputs()


def network(inputs: int, arms: int) -> Estimator:
    """The learner that is used unless another is given: LO-FI with fifty hidden units."""
    noise = likelihoods.adaptive_gaussian()
    return lofi(models.mlp([inputs, 50, arms]), noise, rank=10)


class _Shell(bandit.base.Policy):
    """What both policies share: arms and features by name, and a belief about their rewards."""

    _state: State = None  # before the first pull, which says which arms and features there are

    def __init__(
        self,
        make: Make | None = None,
        policy: Policy | None = None,
        reward_obj: Any = None,
        burn_in: int = 0,
        seed: int = 0,
    ) -> None:
        check_whole("burn_in", burn_in, 0)
        super().__init__(reward_obj, burn_in=burn_in)
        self.make, self.policy, self.seed = make, policy, seed

    def _prepare(self, arms: Sequence[Hashable], context: Context) -> None:
        """Begin with these arms and features, or refuse those that have not been there before."""
        if self._state is not None:
            for arm in arms:
                self._number(arm)
            return
        self._arms = {arm: number for number, arm in enumerate(arms)}
        self._features = sorted(context or (), key=str)
        # Without a context there is one input, always 1.
        self._learner = (self.make or network)(max(len(self._features), 1), len(arms))
        self._key, key = jax.random.split(jax.random.key(self.seed))
        self._state = self._learner.init(key)
        self._decisions = 0

    def _choose(self, arms: Sequence[Hashable], context: Context) -> Any:
        offered = np.isin(range(len(self._arms)), [self._number(arm) for arm in arms])
        self._key, key = jax.random.split(self._key)
        choose = _choice(self._learner, self.policy or DEFAULT)
        chosen = choose(self._state, self._input(context), offered, key, self._decisions)
        self._decisions += 1
        return list(self._arms)[int(chosen)]

    def _learn(self, arm: Hashable, context: Context, reward: float) -> None:
        if self._state is None:
            raise ValueError("pull must come before update: it says which arms there are.")
        rewards = np.full(len(self._arms), np.nan)
        rewards[self._number(arm)] = reward
        self._key, key = jax.random.split(self._key)
        self._state = _update(self._learner)(self._state, self._input(context), rewards, key)

    def _number(self, arm: Hashable) -> int:
        if arm not in self._arms:
            raise ValueError(f"arm_ids must be among those of the first pull, got {arm!r}.")
        return self._arms[arm]

    def _input(self, context: Context) -> NDArray[Any]:
        given = context or {}
        for name in given:
            if name not in self._features:
                raise ValueError(f"context must have the first one's features, got {name!r}.")
        return np.array([given.get(name, 0.0) for name in self._features] or [1.0], float)


class BayesBandit(_Shell):
    """Arms without a context: river's `pull(arm_ids)` and `update(arm_id, reward)`.

    Args:
        make: (how many inputs, how many arms) → a learner with an output for each arm.
        policy: from `bs.policies`; Thompson sampling of the arms' outputs unless given.
        reward_obj: what river keeps of each arm's rewards, for its ranking.
        burn_in: how often each arm is pulled before the policy decides.
        seed: of all that is random.

    >>> policy = BayesBandit(burn_in=2)
    >>> for _ in range(30):
    ...     arm = policy.pull(["left", "right"])
    ...     policy.update(arm, 1.0 if arm == "right" else 0.0)
    >>> policy.ranking
    ['right', 'left']
    """

    def _pull(self, arm_ids: Any) -> Any:
        return self._choose(arm_ids, None)

    def pull(self, arm_ids: Any) -> Any:
        """One of these arms."""
        self._prepare(arm_ids, None)
        return super().pull(arm_ids)

    def update(self, arm_id: Any, *reward_args: Any, **reward_kwargs: Any) -> None:
        """Learn what an arm has paid."""
        super().update(arm_id, *reward_args, **reward_kwargs)
        self._learn(arm_id, None, *reward_args)


class BayesContextualBandit(_Shell, bandit.base.ContextualPolicy):
    """River's `pull(arm_ids, context)` and `update(arm_id, context, reward)`.

    A context is a dict of numbers. The first pull says which features and arms there are; of the
    arms, later ones may offer some. A feature that is left out is 0. Arguments as in `BayesBandit`.

    >>> import bayestream as bs
    >>> policy = BayesContextualBandit(policy=bs.policies.upper_confidence(2.0))
    >>> arm = policy.pull(["tea", "coffee"], context={"hour": 0.3})
    >>> policy.update(arm, {"hour": 0.3}, 1.0)
    """

    def _pull(self, arm_ids: Any, context: Any = None) -> Any:
        return self._choose(arm_ids, context)

    def pull(self, arm_ids: Any, context: Any = None) -> Any:
        """One of these arms."""
        self._prepare(arm_ids, context)
        return super().pull(arm_ids, context)

    def update(self, arm_id: Any, context: Any, *reward_args: Any, **reward_kwargs: Any) -> None:
        """Learn what an arm has paid."""
        super().update(arm_id, context, *reward_args, **reward_kwargs)
        self._learn(arm_id, context, *reward_args)


@lru_cache(maxsize=32)
def _choice(learner: Estimator, policy: Policy) -> Callable[..., Array]:
    def choose(state: State, x: Array, offered: Array, key: Key, step: Array) -> Array:
        wanted = policy(learner, learner.predict(state), x, key, step)
        return jnp.argmax(jnp.where(offered, wanted, -jnp.inf))

    return jax.jit(choose)


@lru_cache(maxsize=32)
def _update(learner: Estimator) -> Callable[..., State]:
    return jax.jit(
        lambda state, x, y, key: learner.update(learner.predict(state), x, y, key),
        donate_argnums=0,
    )
