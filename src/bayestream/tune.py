"""Hyper-parameters by Bayesian optimisation (Optuna), on anything but the test set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream import estimators, predictive
from bayestream.checks import check_choice, check_whole
from bayestream.evaluate import METRICS, Forecaster, score_each, score_many
from bayestream.progress import Progress
from bayestream.run import run
from bayestream.spaces import Range, Space
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model, Stream

Numbers = dict[str, float]
# Told how good a trial is after each stretch of the stream; raises HopelessError to give it up.
Report = Callable[[float], None]
Objective = Callable[[Estimator, Report], float]
NOISE = Range(1e-4, 1.0)  # of a target that has been standardised
_PIECES = 4  # stretches of the stream between which a trial may be given up
_NLPD = (("nlpd", METRICS["nlpd"]),)


class HopelessError(Exception):
    """A trial that is not worth finishing."""


def prequential(
    stream: Stream, *, forecast: Forecaster = predictive.default, seed: int = 0
) -> Objective:
    """The mean negative log predictive density of each example before it is learnt from."""
    record = score_each(forecast, _NLPD)

    def objective(learner: Estimator, report: Report) -> float:
        state = learner.init(jax.random.key(seed))
        losses: list[np.ndarray] = []
        for number, piece in enumerate(_pieces(stream)):
            key = jax.random.fold_in(jax.random.key(seed), number)
            state, kept = run(learner, state, piece, record=record, key=key, progress=False)
            losses.append(np.asarray(kept["nlpd"], np.float64))
            report(_mean(losses))
        return _mean(losses)

    return objective


def validation(
    train: Stream, held_out: Stream, *, forecast: Forecaster = predictive.default, seed: int = 0
) -> Objective:
    """The negative log predictive density of held-out data after training; for data at rest.

    What is held out must be part of the training data: the test set has no place in tuning.
    """
    x, y = jnp.asarray(held_out.examples.x), jnp.asarray(held_out.examples.y)

    def objective(learner: Estimator, report: Report) -> float:
        examine = score_many(learner, forecast, _NLPD)
        state, value = learner.init(jax.random.key(seed)), math.nan
        for number, piece in enumerate(_pieces(train)):
            key = jax.random.fold_in(jax.random.key(seed), number)
            state, _ = run(learner, state, piece, record=None, key=key, progress=False)
            value = float(examine(state, x, y)["nlpd"])
            report(value)
        return value

    return objective


class Tuned(NamedTuple):
    """The best values found, and how good they were."""

    method: str
    fixed: Mapping[str, Any]  # what was given
    best: Numbers  # what was searched for
    value: float  # the objective there
    baseline: float | None  # the objective of what it was compared with
    trials: int
    space: Space

    def estimator(self, model: Model, likelihood: Any) -> Estimator:
        """The method with these values; `likelihood` as in `tune`."""
        return build(self.method, model, likelihood, self.best, self.space, self.fixed)

    def python(self) -> str:
        """The call, ready to paste."""
        noise = f"({self.best['noise']:.4g})" if "noise" in self.best else ""
        likelihood = f"bs.likelihoods.gaussian{noise}" if noise else "likelihood"
        options = [f"{name}={value!r}" for name, value in self.fixed.items()]
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
            lines.append(f"noise = {self.best['noise']:.4g}")
        options = [f"{name} = {json.dumps(value)}" for name, value in self.fixed.items()]
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
    workers: int = 1,
    seed: int = 0,
    storage: str | Path | None = None,
    study: str | None = None,
    progress: bool | None = None,
) -> Tuned:
    """Search for hyper-parameters that make the objective small.

    Args:
        method: a name from the registry, such as "lofi".
        model: the network.
        likelihood: what its output means; or a function of the noise, such as
            `bs.likelihoods.gaussian` itself, and the noise is searched for as well.
        objective: `prequential(stream)`, or `validation(train, held_out)`.
        fixed: options that are given, not searched: {"rank": 10}.
        space: where to look, by default what the estimator declares.
        known: good values to try first.
        baseline: an estimator to compare with.
        trials: how many in all, those of an earlier run with the same storage among them.
        workers: threads; compilation takes most of the time, and two compile at once. With more
            than one, which trials come first, and so the result, depends on timing.
        seed: of the search. With one worker, a search that was stopped and resumed is the same as
            one that was not.
        storage: a file (SQLite) to keep trials in, so that a search can be resumed.
        study: the search's name in that file.
        progress: as in `run`.

    >>> import bayestream as bs
    >>> stream = bs.streams.drifting_linear_regression(0, steps=40, inputs=2)
    >>> found = bs.tune.tune("lofi", bs.models.mlp([2, 1]), bs.likelihoods.gaussian,
    ...                      bs.tune.prequential(stream), fixed={"rank": 2}, trials=2)
    >>> sorted(found.best)
    ['decay', 'drift', 'noise', 'prior_precision']
    """
    optuna = _optuna()
    check_whole("trials", trials, 1)
    check_whole("workers", workers, 1)
    fixed = dict(fixed or {})
    declared = check_choice("method", method, estimators.SPACES) if space is None else space
    searched = {name: place for name, place in declared.items() if name not in fixed}
    if callable(likelihood):
        searched["noise"] = NOISE
    search = _study(optuna, storage, study or method, searched, fixed, seed)
    lock = Lock()
    distributions = {
        name: optuna.distributions.FloatDistribution(place.low, place.high, log=True)
        for name, place in searched.items()
    }
    started = len(_finished(search))

    def ask() -> Any:
        """The next trial: it depends on what is finished and on its number, not on this process."""
        nonlocal started
        with lock:
            if started >= trials:
                return None
            if started < len(known):
                values = {n: searched[n].searched(v) for n, v in known[started].items()}
                search.enqueue_trial(values)
            search.sampler = optuna.samplers.TPESampler(
                seed=np.random.SeedSequence([seed, started]).generate_state(1)[0],
                n_startup_trials=min(10, max(1, trials // 3)),
                # Unfinished trials count only among workers: one that was cut off must not.
                constant_liar=workers > 1,
            )
            started += 1
            return search.ask(distributions)

    def work(bar: Progress) -> None:
        while (trial := ask()) is not None:
            numbers = {name: searched[name].value(v) for name, v in trial.params.items()}
            learner = build(method, model, likelihood, numbers, searched, fixed)
            try:
                value = objective(learner, _reporter(trial))
            except HopelessError:
                value = math.nan
            with lock:
                pruned = not math.isfinite(value)
                state = optuna.trial.TrialState.PRUNED if pruned else None
                search.tell(trial, None if pruned else value, state=state)
                bar.label = f"tuning {method}, best {_best(search)[1]:.4f},"
                bar.advance(1)

    before = None if baseline is None else objective(baseline, lambda value: None)
    with Progress(f"tuning {method}", total=trials, show=progress) as bar:
        bar.advance(min(started, trials))
        with ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit(work, bar) for _ in range(workers)]:
                future.result()
    params, value = _best(search)
    if math.isinf(value):
        raise ValueError(f"no trial of {trials} gave a finite value; widen the space.")
    best = {name: searched[name].value(params[name]) for name in searched}
    return Tuned(method, fixed, best, value, before, len(_finished(search)), searched)


def _reporter(trial: Any) -> Report:
    steps = iter(range(_PIECES + 1))

    def report(value: float) -> None:
        if not math.isfinite(value):
            raise HopelessError
        trial.report(value, next(steps))
        if trial.should_prune():
            raise HopelessError

    return report


def _study(
    optuna: Any,
    storage: str | Path | None,
    name: str,
    space: Space,
    fixed: Mapping[str, Any],
    seed: int,
) -> Any:
    if storage is not None:
        Path(storage).parent.mkdir(parents=True, exist_ok=True)
    found = optuna.create_study(
        study_name=name,
        storage=None if storage is None else f"sqlite:///{storage}",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
    )
    ranges = {key: [place.low, place.high] for key, place in space.items()}
    described = json.dumps([ranges, {k: repr(v) for k, v in fixed.items()}, seed], sort_keys=True)
    earlier = found.user_attrs.setdefault("described", described)
    if earlier != described:
        raise ValueError(
            f"{storage} holds a search named {name!r} with other settings; "
            "choose another file or another name."
        )
    found.set_user_attr("described", described)
    return found


def _finished(search: Any) -> list[Any]:
    return [trial for trial in search.get_trials(deepcopy=False) if trial.state.is_finished()]


def _best(search: Any) -> tuple[dict[str, float], float]:
    done = [trial for trial in _finished(search) if trial.value is not None]
    best = min(done, key=lambda trial: trial.value, default=None)
    return ({}, math.inf) if best is None else (best.params, best.value)


def _pieces(stream: Stream) -> list[Stream]:
    if np.any(stream.examples.delay):  # labels would get lost between the pieces
        return [stream]
    return [stream.select(part) for part in np.array_split(np.arange(len(stream)), _PIECES)]


def _mean(losses: list[np.ndarray]) -> float:
    known = np.concatenate(losses)
    known = known[~np.isnan(known)]
    return float(np.mean(known)) if known.size else math.inf


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ImportError("tuning needs optuna: pip install 'bayestream[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
