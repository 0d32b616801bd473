"""Dynamic model averaging: every setting learns, and is believed as far as it forecasts well."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.averaging.committee import committee, covariance_of
from bayestream.averaging.groups import Factory, Setting, grouped, shares
from bayestream.checks import check_fraction, is_exactly
from bayestream.estimators.description import description
from bayestream.forecasts import (
    AveragedForecast,
    CategoricalForecast,
    Forecast,
    averaged_classes,
    plain,
    predictive,
)
from bayestream.types import Array, Estimator, Key, Likelihood

_LEAST = -1e3  # log p(y | x) of a setting, below the best one's: it must be able to come back


class AveragedState(NamedTuple):
    """Every setting's own state, and how far each is believed."""

    members: tuple[Any, ...]  # of each group, stacked
    log_weights: Array  # log w (M,), in the order of the settings

    @property
    def weights(self) -> Array:
        """The probability of each setting (M,)."""
        return jnp.exp(self.log_weights)


def grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of the values, as settings.

    >>> grid(prior_precision=[1.0, 10.0], rank=[5])
    [{'prior_precision': 1.0, 'rank': 5}, {'prior_precision': 10.0, 'rank': 5}]
    """
    for name, several in values.items():
        if isinstance(several, str) or not hasattr(several, "__iter__"):
            raise TypeError(f"{name} must be a list of values to combine, got {several!r}.")
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def averaged(
    factory: Factory,
    settings: Sequence[Setting],
    *,
    forget: float = 0.99,
    switching: float = 0.0,
) -> Estimator:
    """Learn with several settings at once, and believe each as far as it forecasts well.

    Dynamic model averaging (Raftery, Kárný & Ettler 2010): each setting is a learner, its weight
    w ← w^f p(y | x), normalised; the forecast is the mixture Σ w p(y | x). So nobody has to know
    how fast the world moves: the settings that fit it now are the ones that speak.

    Args:
        factory: makes a learner from a setting: factory(**setting).
        settings: its keyword arguments, a mapping each; see `bs.grid`. Settings that differ in
            floats alone run together under vmap. Any other difference (rank, method, likelihood,
            network) is a program of its own; all must forecast the same kind of thing.
        forget: f, from 0 to 1. Evidence n observations old counts f^n: 0.99 looks back about a
            hundred, 1 is Bayesian model averaging. A missing label changes no weight.
        switching: ε, from 0 to 1: the chance that from one observation to the next another setting
            has become the right one, w ← (1 − ε) w + ε/M (the fixed share of Herbster & Warmuth
            1998). With some, a setting that was wrong for long is heard as soon as it is right.

    The weights are in the state, `state.weights`, in the order of the settings. Of its belief over
    the network's parameters, `mean`, `covariance_between` and `sample` are those of the mixture;
    where settings have networks of their own, `model` is the weighted mean of these networks.

    >>> import bayestream as bs
    >>> model, likelihood = bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1)
    >>> learner = bs.averaged(
    ...     lambda **setting: bs.lofi(model, likelihood, rank=2, **setting),
    ...     bs.grid(prior_precision=[1.0, 10.0], drift=[0.0, 1e-3]))
    >>> state = learner.init(jax.random.key(0))
    >>> state, _ = bs.step(learner, state, jnp.ones(1), jnp.ones(1))
    >>> state.weights.shape
    (4,)
    """
    check_fraction("forget", forget)
    check_fraction("switching", switching)
    if not settings:
        raise ValueError("settings must hold at least one, got none.")
    groups = grouped(factory, settings)
    first = groups[0]
    for group in groups:
        shape = (group.model.inputs, group.model.outputs)
        if shape != (first.model.inputs, first.model.outputs):
            raise ValueError(
                "settings must have networks of the same inputs and outputs, got "
                f"{(first.model.inputs, first.model.outputs)} and {shape}."
            )
    order = np.argsort([place for group in groups for place in group.places])

    def init(key: Key) -> AveragedState:
        members = tuple(group.each(lambda learner: learner.init(key)) for group in groups)
        dtype = jax.eval_shape(first.model.init, key).dtype
        return AveragedState(members, jnp.full(len(settings), -jnp.log(len(settings)), dtype))

    def each(function: Any, state: AveragedState) -> list[Any]:
        """function(learner, its state) of each group's settings, stacked."""
        pairs = zip(groups, state.members, strict=True)
        return [group.each(function, members) for group, members in pairs]

    def of_all(stacked: Sequence[Array]) -> Array:
        """What each group says, in the order of the settings."""
        return jnp.concatenate(stacked)[order]

    def predict(state: AveragedState) -> AveragedState:
        moved = each(lambda learner, own: learner.predict(own), state)
        return state._replace(members=tuple(moved))

    def learnt(state: AveragedState, x: Any, evidence: Any, update: Any) -> AveragedState:
        """Each setting's own update, and the weights by what each had forecast."""
        densities, seen = map(of_all, zip(*each(evidence, state), strict=True))
        count = seen[0].astype(densities.dtype)
        weights = _weighed(state.log_weights, densities, forget**count)
        if not is_exactly(switching, 0):
            weights = _mixed(weights, 1 - (1 - switching) ** count)
        return AveragedState(tuple(each(partial(update, x=_after(x, weights)), state)), weights)

    def update(state: AveragedState, x: Any, y: Any, key: Key | None = None) -> AveragedState:
        return learnt(
            state,
            x,
            lambda learner, own: _evidence(learner, own, jnp.asarray(x), jnp.asarray(y)),
            lambda learner, own, x: learner.update(own, x, y, key),
        )

    def update_batch(
        state: AveragedState, xs: Any, ys: Any, key: Key | None = None
    ) -> AveragedState:
        def evidence(learner: Estimator, own: Any) -> tuple[Array, Array]:
            one_by_one = jax.vmap(partial(_evidence, learner, own))
            return jax.tree.map(jnp.sum, one_by_one(jnp.asarray(xs), jnp.asarray(ys)))

        return learnt(
            state,
            xs,
            evidence,
            lambda learner, own, x: learner.update_batch(own, x, ys, key),
        )

    def forecast(state: AveragedState, x: Any) -> Forecast:
        parts = each(lambda learner, own: plain(predictive.default(learner, own, x)), state)
        weights = jnp.concatenate(shares(groups, state.weights))
        if isinstance(parts[0], CategoricalForecast):
            logits = jnp.concatenate([part.logits for part in parts])
            return averaged_classes(weights, logits)
        return AveragedForecast(weights, tuple(parts))

    def likelihood(state: AveragedState) -> Likelihood:
        """That of the first group's most probable setting."""
        best = jnp.argmax(shares(groups, state.weights)[0])
        learner, own = first.one(best, state.members[0])
        return learner.likelihood(own)

    def refused(state: AveragedState) -> Array:
        """The updates that no setting has made."""
        counts = each(lambda learner, own: learner.refused(own), state)
        return jnp.min(jnp.concatenate(counts))

    # Made with numbers that are known, each setting is checked.
    alone = [factory(**setting) for setting in settings]
    model = alone[0].model
    belief = committee(groups, one_network=all(each.model is model for each in alone))
    certain = any(learner.covariance_of is None for learner in alone)
    return Estimator(
        model=belief.model,
        likelihood=likelihood,
        init=jax.jit(init),
        predict=predict,
        update=update,
        update_batch=update_batch,
        mean=belief.mean,
        covariance_between=None if certain else belief.covariance_between,
        covariance_of=None if certain else covariance_of(belief.covariance_between),
        sample=None if certain else belief.sample,
        refused=refused,
        forecast=forecast,
        description=description(
            "averaged", {"forget": forget, "switching": switching, "members": alone}
        ),
        networks=tuple(group.model for group in groups),
    )


def _evidence(learner: Estimator, state: Any, x: Array, y: Array) -> tuple[Array, Array]:
    """Log p(y | x), zero where nothing can be learnt from it, and whether something can.

    Of x as it came: the same forecast is made before the update, and a compiler makes it once.
    """
    dtype = learner.mean(state).dtype
    missing = learner.likelihood(state).missing(y.astype(dtype))
    seen = ~missing & jnp.all(jnp.isfinite(x))
    known = jnp.where(missing, jnp.zeros_like(y), y)
    found = predictive.default(learner, state, x).log_density(known)
    return jnp.where(seen, found, 0.0), seen


def _after(x: Any, weights: Array) -> Array:
    """The same x, known once the weights are: an update overwrites what they are made from.

    Otherwise a compiler copies every belief first, which costs half as much as the update.
    """
    nothing = 0 * jnp.sum(weights)  # no compiler may know: the weights might not be finite
    return jnp.asarray(x) + nothing.astype(jnp.asarray(x).dtype)


def _weighed(log_weights: Array, evidence: Array, forget: Array) -> Array:
    """Log w^f p(y | x), normalised; what is no number is the worst there is."""
    evidence = jnp.where(jnp.isnan(evidence), -jnp.inf, evidence)
    best = jnp.max(evidence)
    evidence = jnp.where(jnp.isfinite(best), jnp.maximum(evidence - best, _LEAST), 0.0)
    found = forget * log_weights + evidence
    return found - jax.nn.logsumexp(found)


def _mixed(log_weights: Array, share: Array) -> Array:
    """Log of (1 − share) w + share/M."""
    even = jnp.log(share / log_weights.size)
    return jnp.logaddexp(jnp.log1p(-share) + log_weights, even)
