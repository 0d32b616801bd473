"""Hyper-parameters by Bayesian optimisation (Optuna), on anything but the test set."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Lock
from typing import Any, NamedTuple

import jax
import numpy as np

from bayestream import estimators
from bayestream.checks import check_choice, check_whole
from bayestream.estimators.spaces import Range, Space
from bayestream.progress import Progress
from bayestream.running.refusals import RefusedError
from bayestream.tuning.objectives import HopelessError, Objective, Report, prequential, validation
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model

__all__ = ["NOISE", "Objective", "Tuned", "build", "prequential", "tune", "validation"]

Numbers = dict[str, float]
NOISE = Range(1e-4, 1.0)  # of a target that has been standardised
_KEPT = 20  # trials whose compiled programs are kept
_AT_RANDOM = 10  # trials before the search is guided by what it has found


class Tuned(NamedTuple):
    """The best values found, and how good they were."""

    method: str
    fixed: Mapping[str, Any]  # what was given
    best: Numbers  # what was searched for
    value: float  # the objective there
    baseline: float | None  # the objective of what it was compared with
    trials: int
    space: Space
    refused: int = 0  # trials given up because most of their updates would not have been finite

    def estimator(self, model: Model, likelihood: Any) -> Estimator:
        """The method with these values; `likelihood` as in `tune`."""
        return build(self.method, model, likelihood, self.best, self.space, self.fixed)

    def python(self) -> str:
        """The call, ready to paste."""
        noise = f"({self.best['noise']:.4g})" if "noise" in self.best else ""
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
            lines.append(f"noise = {self.best['noise']:.4g}")
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
    workers: int = 1,
    seed: int = 0,
    storage: str | Path | None = None,
    study: str | None = None,
    progress: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
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
        baseline: an estimator to compare with.
        trials: how many in all, those of an earlier run with the same storage among them.
        workers: threads; compilation takes most of the time, and two compile at once. With more
            than one, which trials come first, and so the result, depends on timing.
        seed: of the search. With one worker, a search that was stopped and resumed, or made longer,
            is the same as one that was not.
        storage: a file (SQLite) to keep trials in, so that a search can be resumed.
        study: the search's name in that file.
        progress: as in `run`.
        stop: asked before each trial and within it; the search ends once the answer is yes. A trial
            that it cuts off is made again when the search is resumed.

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
    declared = dict(check_choice("method", method, estimators.SPACES) if space is None else space)
    if callable(likelihood):
        declared["noise"] = NOISE
    searched = {name: place for name, place in declared.items() if name not in fixed}
    for name in {name for values in known for name in values} - set(searched):
        raise ValueError(f"known must be of {', '.join(searched)}, got {name!r}.")
    about = [method, model.size, model.inputs, model.outputs, objective.about, seed]
    search = _study(optuna, storage, study or method, searched, fixed, about)
    lock = Lock()
    distributions = {
        name: optuna.distributions.FloatDistribution(place.low, place.high, log=True)
        for name, place in searched.items()
    }
    started, over = len(_finished(search)), Event()

    def ask() -> Any:
        """The next trial: it depends on what is finished and on its number, not on this process."""
        nonlocal started
        with lock:
            if started >= trials or over.is_set() or stop():
                return None
            if started < len(known):
                values = {n: searched[n].searched(v) for n, v in known[started].items()}
                search.enqueue_trial(values)
            search.sampler = optuna.samplers.TPESampler(
                seed=np.random.SeedSequence([seed, started]).generate_state(1)[0],
                n_startup_trials=_AT_RANDOM,
                # Unfinished trials count only among workers: one that was cut off must not.
                constant_liar=workers > 1,
            )
            started += 1
            return search.ask(distributions)

    def work(bar: Progress) -> None:
        try:
            while (trial := ask()) is not None:
                numbers = {name: searched[name].value(v) for name, v in trial.params.items()}
                learner = build(method, model, likelihood, numbers, declared, fixed)
                try:
                    with warnings.catch_warnings():  # of a few refused updates
                        warnings.simplefilter("ignore", RuntimeWarning)
                        value = objective.value(learner, _reporter(trial, stop))
                except HopelessError:
                    value = math.nan
                except RefusedError as error:
                    value = math.nan
                    trial.set_user_attr("refused", str(error))
                except _StoppedError:
                    return
                with lock:
                    pruned = not math.isfinite(value)
                    state = optuna.trial.TrialState.PRUNED if pruned else None
                    search.tell(trial, None if pruned else value, state=state)
                    bar.label = f"tuning {method}, best {_best(search)[1]:.4f},"
                    bar.advance(1)
                    # Nobody will ask for a trial's programs again, and each keeps some megabytes.
                    if bar.done % _KEPT == 0:
                        jax.clear_caches()
        finally:
            over.set()  # an interruption, or an error, is everybody's

    before = None
    with suppress(_StoppedError):
        if baseline is not None and not stop():
            before = objective.value(baseline, lambda value: _ask(stop))
    with Progress(f"tuning {method}", total=trials, show=progress) as bar:
        bar.advance(min(started, trials))
        with ThreadPoolExecutor(max(workers - 1, 1)) as pool:
            others = [pool.submit(work, bar) for _ in range(workers - 1)]
            work(bar)
            for other in others:
                other.result()
    params, value = _best(search)
    if math.isinf(value) and stop():
        raise ValueError("the search was stopped before a trial was complete.")
    if math.isinf(value):
        raise ValueError(f"no trial of {trials} gave a finite value; widen the space.")
    best = {name: searched[name].value(params[name]) for name in searched}
    done = _finished(search)
    refused = sum("refused" in trial.user_attrs for trial in done)
    return Tuned(method, fixed, best, value, before, len(done), searched, refused)


class _StoppedError(Exception):
    """The search ends in the middle of a trial."""


def _ask(stop: Callable[[], bool]) -> None:
    if stop():
        raise _StoppedError


def _reporter(trial: Any, stop: Callable[[], bool]) -> Report:
    steps = count()

    def report(value: float) -> None:
        _ask(stop)
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
    about: list[Any],
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
    # A trial that was given up has a value too: its last report.
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
