"""Hyper-parameters by Bayesian optimisation (Optuna), on anything but the test set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayestream import estimators
from bayestream.checks import check_choice, check_whole
from bayestream.estimators.spaces import Range, Space
from bayestream.progress import Progress
from bayestream.running.ray_cluster import connected
from bayestream.running.ray_tasks import spread
from bayestream.tuning.objectives import Make, Objective, Values, joined, prequential, validation
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model

__all__ = ["NOISE", "Objective", "Tuned", "Values", "build", "prequential", "tune", "validation"]

Numbers = dict[str, float]
NOISE = Range(1e-4, 1.0)  # of a target that has been standardised
_ROUND = 10  # trials that are guided by the same rounds before; the first round is at random
_LANES = 2  # trials of a task; one alone is another program than several, and rounds otherwise


class Tuned(NamedTuple):
    """The best values found, and how good they were."""

    method: str
    fixed: Mapping[str, Any]  # what was given
    best: Numbers  # what was searched for
    value: float  # the objective there
    baseline: float | None  # the objective of what it was compared with
    trials: int
    space: Space
    refused: int = 0  # trials that lost: most of their updates would not have been finite
    history: Sequence[tuple[Numbers, float]] = ()  # every trial that has a value, as they came

    def estimator(self, model: Model, likelihood: Any) -> Estimator:
        """The method with these values; `likelihood` as in `tune`."""
        return build(self.method, model, likelihood, self.best, self.space, self.fixed)

    def python(self) -> str:
        """The call, ready to paste."""
        noise = f"({self.best['noise']!r})" if "noise" in self.best else ""
        likelihood = f"bs.likelihoods.gaussian{noise}" if noise else "likelihood"
        options = [f"{name}={_literal(value) or name}" for name, value in self.fixed.items()]
        options += [
            f"{name}={self.space[name].code.format(self.space[name].short(value))}"
            for name, value in self.best.items()
            if name != "noise"
        ]
        lines = "".join(f"    {option},\n" for option in options)
        return f"learner = bs.{self.method}(\n    model,\n    {likelihood},\n{lines})"

    def toml(self) -> str:
        """For a file that `bayestream run --config` reads."""
        lines = [f'method = "{self.method}"', *self._comment()]
        if "noise" in self.best:
            lines.append(f"noise = {self.best['noise']!r}")
        literal = {name: _literal(value) for name, value in self.fixed.items()}
        options = [f"{n} = {v}" if v else f"# {n}: as it was given" for n, v in literal.items()]
        options += [
            f"{name} = {self.space[name].short(value)}"
            for name, value in self.best.items()
            if name != "noise"
        ]
        return "\n".join([*lines, "", "[options]", *options]) + "\n"

    def _comment(self) -> list[str]:
        before = "" if self.baseline is None else f", untuned {self.baseline:.4f}"
        return [f"# negative log predictive density {self.value:.4f}{before}"]


def build(
    method: str,
    model: Model,
    likelihood: Any,
    numbers: Mapping[str, float],
    space: Space,
    fixed: Mapping[str, Any],
) -> Estimator:
    """The estimator that a set of numbers stands for; "noise" goes to the likelihood."""
    options = {
        name: space[name].make(value) if name in space else value
        for name, value in {**fixed, **numbers}.items()
        if name != "noise"
    }
    believed: Any = likelihood(numbers["noise"]) if callable(likelihood) else likelihood
    return estimators.make(method, model, believed, **options)


def tune(
    method: str,
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood | Callable[[float], Likelihood],
    objective: Objective,
    *,
    fixed: Mapping[str, Any] | None = None,
    space: Space | None = None,
    known: Sequence[Numbers] = (),
    baseline: Estimator | None = None,
    trials: int = 30,
    seed: int = 0,
    storage: str | Path | None = None,
    study: str | None = None,
    progress: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
    ray: str | None = None,
) -> Tuned:
    """Search for hyper-parameters that make the objective small.

    Args:
        method: a name from the registry, such as "lofi".
        model: the network.
        likelihood: what its output means; or a function of the noise, such as
            `bs.likelihoods.gaussian` itself, and the noise is searched for as well.
        objective: `prequential(stream)`, `validation(train, held_out)`, or an `Objective` of your
            own.
        fixed: options that are given, not searched: {"rank": 10}.
        space: where to look, by default what the estimator declares.
        known: good values to try first.
        baseline: an estimator to compare with, tried before all others.
        trials: how many in all, those of an earlier run with the same storage among them.
        seed: of the search. One that was stopped and resumed, or made longer, is the same as one
            that was not.
        storage: a file (SQLite) to keep trials in, so that a search can be resumed.
        study: the search's name in that file.
        progress: as in `run`.
        stop: asked now and then; the search ends once the answer is yes. Trials that it cuts off
            are made again when the search is resumed.
        ray: the address of a Ray cluster, as in `bs.ray_fleet`, whose CPUs make a round's trials at
            the same time; their numbers, and so the search, do not depend on how many there are.

    Trials run together under vmap, ten at a time or as many as fit, and a method is compiled once.
    On a cluster a task has two of a round's ten.

    >>> import bayestream as bs
    >>> stream = bs.streams.drifting_linear_regression(0, steps=40, inputs=2)
    >>> found = bs.tune.tune("lofi", bs.models.mlp([2, 1]), bs.likelihoods.gaussian,
    ...                      bs.tune.prequential(stream), fixed={"rank": 2}, trials=2)
    >>> sorted(found.best)
    ['decay', 'drift', 'noise', 'prior_precision']
    """
    optuna = _optuna()
    check_whole("trials", trials, 1)
    fixed = dict(fixed or {})
    declared = dict(check_choice("method", method, estimators.SPACES) if space is None else space)
    if callable(likelihood):
        declared["noise"] = NOISE
    searched = {name: place for name, place in declared.items() if name not in fixed}
    for name in {name for values in known for name in values} - set(searched):
        raise ValueError(f"known must be of {', '.join(searched)}, got {name!r}.")
    about = [method, model.size, model.inputs, model.outputs, objective.about, seed]
    search = _study(optuna, storage, study or method, searched, fixed, about)
    distributions = {
        name: optuna.distributions.FloatDistribution(place.low, place.high, log=True)
        for name, place in searched.items()
    }

    def make(numbers: Mapping[str, Any]) -> Estimator:
        return build(method, model, likelihood, numbers, declared, fixed)

    def proposed(number: int) -> dict[str, float]:
        """A trial's values: they depend on its number and the rounds before it, on nothing else."""
        if number < len(known):
            return {name: searched[name].searched(v) for name, v in known[number].items()}
        sampler = optuna.samplers.TPESampler(
            seed=np.random.SeedSequence([seed, number]).generate_state(1)[0],
            n_startup_trials=_ROUND,
        )
        guide = optuna.create_study(sampler=sampler)
        guide.add_trials(_finished(search)[: number // _ROUND * _ROUND])
        return guide.ask(distributions).params

    before = None
    with (
        Progress(f"tuning {method}", total=trials, show=progress) as bar,
        nullcontext() if ray is None else connected(ray) as cluster,
        suppress(_StoppedError),
    ):
        ended = Event()  # once the answer was yes, it stays so

        def stopped() -> bool:
            bar.advance(0)  # a round can take minutes
            if stop():
                ended.set()
            return ended.is_set()

        def ask() -> None:
            if stopped():
                raise _StoppedError

        tried = None
        if cluster is not None:
            tried = spread(cluster, partial(_tried, objective, make))

        if baseline is not None:
            ask()
            found = objective.values(lambda numbers: baseline, {}, 1, ask)
            before = float(found.losses[0])
        bar.advance(min(len(_finished(search)), trials))
        while (done := len(_finished(search))) < trials:
            ask()
            numbers = range(done, min(trials, done // _ROUND * _ROUND + _ROUND))
            params = [proposed(number) for number in numbers]
            values = [_rounded(searched, each) for each in params]
            # Fewer than a round would be another program: the last one fills it up.
            full = values + [values[-1]] * (_ROUND - len(values))
            stacked = {name: jnp.array([each[name] for each in full]) for name in searched}
            if tried is None:
                found = objective.values(make, stacked, _ROUND, ask)
            else:
                parts = dict(tried(_lanes(stacked, len(params)), stopped))
                ask()  # there may be too few of them, if it was stopped
                found = joined([parts[place] for place in sorted(parts)])
            for index, each in enumerate(params):
                _tell(optuna, search, distributions, each, found, index)
            bar.label = f"tuning {method}, best {_best(search)[1]:.4f},"
            bar.advance(len(params))
    params, value = _best(search)
    if math.isinf(value) and stop():
        raise ValueError("the search was stopped before a trial was complete.")
    if math.isinf(value):
        raise ValueError(f"no trial of {trials} gave a finite value; widen the space.")
    best, trials_done = _rounded(searched, params), _finished(search)
    refused = sum("refused" in trial.user_attrs for trial in trials_done)
    complete = [trial for trial in trials_done if trial.state.name == "COMPLETE"]
    history = [(_rounded(searched, trial.params), trial.value) for trial in complete]
    return Tuned(method, fixed, best, value, before, len(trials_done), searched, refused, history)


def _tried(objective: Objective, make: Make, numbers: Mapping[str, Any]) -> Values:
    """A task's trials."""
    return objective.values(make, numbers, _LANES, lambda: None)


def _lanes(stacked: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The numbers of the first `count` trials, and of what fills the last task up."""
    return [
        {name: np.asarray(values[first : first + _LANES]) for name, values in stacked.items()}
        for first in range(0, count, _LANES)
    ]


def _rounded(space: Space, params: Mapping[str, float]) -> Numbers:
    """The hyper-parameters as they will be written: what is tried is what is read again."""
    return {name: float(space[name].short(space[name].value(v))) for name, v in params.items()}


def _tell(
    optuna: Any,
    search: Any,
    distributions: Mapping[str, Any],
    params: Mapping[str, float],
    found: Values,
    index: int,
) -> None:
    value = float(found.losses[index])
    lost = bool(found.refused[index]) or not math.isfinite(value)
    states = optuna.trial.TrialState
    search.add_trial(
        optuna.trial.create_trial(
            state=states.PRUNED if lost else states.COMPLETE,
            params=dict(params),
            distributions=dict(distributions),
            value=None if lost else value,
            user_attrs={"refused": True} if found.refused[index] else {},
        )
    )


class _StoppedError(Exception):
    """The search ends in the middle of a round."""


def _study(
    optuna: Any,
    storage: str | Path | None,
    name: str,
    space: Space,
    fixed: Mapping[str, Any],
    about: list[Any],
) -> Any:
    if storage is not None:
        Path(storage).parent.mkdir(parents=True, exist_ok=True)
    found = optuna.create_study(
        study_name=name,
        storage=None if storage is None else f"sqlite:///{storage}",
        load_if_exists=True,
    )
    ranges = {key: [place.low, place.high] for key, place in space.items()}
    given = {key: _literal(value) for key, value in fixed.items()}
    described = json.dumps([ranges, given, about], sort_keys=True)
    earlier = found.user_attrs.setdefault("described", described)
    if earlier != described:
        raise ValueError(
            f"{storage} holds a search named {name!r} with other settings or other data; "
            "choose another file or another name."
        )
    found.set_user_attr("described", described)
    return found


def _finished(search: Any) -> list[Any]:
    return [trial for trial in search.get_trials(deepcopy=False) if trial.state.is_finished()]


def _best(search: Any) -> tuple[dict[str, float], float]:
    done = [trial for trial in _finished(search) if trial.state.name == "COMPLETE"]
    best = min(done, key=lambda trial: trial.value, default=None)
    return ({}, math.inf) if best is None else (best.params, best.value)


def _literal(value: Any) -> str:
    """As Python and TOML both write it; empty for what neither can."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    return json.dumps(value)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ImportError("tuning needs optuna: pip install 'bayestream[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
