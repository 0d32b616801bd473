"""One trial on a stream of images: a learner, tested every so often on what it sees now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream import likelihoods
from bayestream.evaluation import Results, evaluate
from bayestream.evaluation.evaluate import Metric
from bayestream.experiments import images, lines
from bayestream.experiments.nouns import Scale, Series, affordable
from bayestream.experiments.trials import losses_along
from bayestream.forecasts import Forecast, predictive, scores
from bayestream.networks import models
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model, State, Stream

WORLDS: dict[str, images.Make] = {
    "stationary": images.stationary,
    "stationary cnn": lambda trial, steps: images.stationary(trial, steps, flat=False),
    "permuted": images.permuted,
    "split": images.split,
    "rotated": images.rotated,
    "turned": images.turned,
    "turned permuted": images.turned_permuted,
    "turning": images.turning,
}
ANGLES = ("turned", "turned permuted", "turning")
DOUBTED = 1_000  # test images whose forecast takes doubt about the weights into account: it is dear
NOISE = 15.0**2  # the variance of an angle
# For a learner that expects targets about 0 with a spread about 1: those of angles from 0 to 180.
CENTRE, SPREAD = 90.0, 52.0
_PATIENCE = 90.0  # seconds of a trial beyond which `quick` leaves it out
# Milliseconds a step at 648,010 weights on one core, by method; LO-FI's at rank 10.
COSTS = {
    "lofi": 14,
    "lofi_spherical": 12,
    "fdekf": 1.5,
    "vdekf": 1.5,
    "replay_sgd": 2,
    "laplace": 6,
    "self_tuning": 125,
}


class Forecasts(NamedTuple):
    """At the mean weights; and, of the first examples, with doubt about them."""

    plugin: Forecast
    doubting: Forecast


def _forecasts(estimator: Estimator, state: State, x: Any) -> Any:
    doubting = predictive.default(estimator, state, x[:DOUBTED])
    return Forecasts(predictive.plugin(estimator, state, x), doubting)


_NLL = Metric(lambda found, y: scores.nlpd(found.plugin, y))
_NLPD = Metric(lambda found, y: scores.nlpd(found.doubting, y[:DOUBTED]))
_CLASSES = Metric(lambda found, y: scores.misclassification(found.plugin, y))
_HALVES = Metric(lambda found, y: jnp.mean((found.plugin.mean[..., 0] > 0.5) != y))
_ANGLES = Metric(lambda found, y: scores.rmse(found.plugin, y))


class Target(NamedTuple):
    """What is to be told: how many outputs, what they mean, and the loss that is shown."""

    outputs: int
    likelihood: Likelihood | EvolvingLikelihood
    metrics: dict[str, Metric]


def target(world: str, method: str) -> Target:
    """An angle, one of two, or one of ten; what needs no tuning finds out how noisy angles are."""
    untuned = method == "self_tuning"
    if world in ANGLES:
        noise = likelihoods.adaptive_student_t() if untuned else likelihoods.gaussian(NOISE)
        return Target(1, noise, {"rmse": _ANGLES})
    if world == "split" and not untuned:  # an average has no forecast of a yes or no
        return Target(1, likelihoods.bernoulli(), {"misclassification": _HALVES})
    outputs = 2 if world == "split" else 10
    return Target(outputs, likelihoods.categorical(), {"misclassification": _CLASSES})


def series(
    experiment: str,
    world: str,
    chosen: Mapping[str, Mapping[str, Any]],
    scale: Scale,
    *,
    steps: int,
    every: int,
    trials: int,
) -> list[Series]:
    """A series for each line; `smoke` has two short trials, `quick` two of what is not dear."""
    steps = 2 * every if scale == "smoke" else steps
    about = {"world": world, "steps": steps, "every": every}
    shown = [
        Series(
            experiment,
            world,
            line,
            {**about, "line": _line(world, options)},
            trials if scale == "full" else 2,
            _seconds(world, options, steps, every),
        )
        for line, options in chosen.items()
    ]
    return affordable(shown, scale, _PATIENCE)


def _line(world: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if options["method"] == "self_tuning":
        return lines.untuned(target(world, "self_tuning").likelihood)
    return dict(options)


def _seconds(world: str, options: Mapping[str, Any], steps: int, every: int) -> float:
    cost, test = COSTS[options["method"]], 0.1
    if "lofi" in options["method"]:
        cost *= ((options["rank"] + 10) / 20) ** 2
    if world.endswith("cnn"):
        cost, test = cost + 4, 0.8
    if options["method"] == "self_tuning":
        test *= 12  # six networks, each with three activations to choose from
    return 2.0 + 1e-3 * cost * steps + test * steps / every


def trial(series: Series, number: int) -> Results:
    """Losses on held-out images of the moment, every so many steps."""
    about = series.settings
    train, tests = WORLDS[about["world"]](number, about["steps"])
    learner = _learner(json.dumps([about["world"], about["line"]]))
    method = about["line"]["method"]
    scaled = about["world"] in ANGLES and method == "self_tuning"
    if scaled:
        train, tests = _standardised(train), _standardised_tests(tests)
    metrics = {**target(about["world"], method).metrics, "nll": _NLL}
    # Of a LeNet the paper has no NLPD, and its Jacobians are dear.
    if learner.covariance_of is not None and not about["world"].endswith("cnn"):
        metrics["nlpd"] = _NLPD
    found = losses_along(
        series.line,
        learner,
        train,
        tests,
        every=about["every"],
        metrics=metrics,
        forecast=_forecasts,
        trial=number,
    )
    if not scaled:
        return found
    value = found["value"]
    value = np.where(found["metric"] == "rmse", value * SPREAD, value + np.log(SPREAD))
    return Results.of(**{**found.columns, "value": value})


def network(world: str, outputs: int = 10) -> Model:
    """The paper's: two hidden layers of 500 ReLU units, or a LeNet."""
    if world.endswith("cnn"):
        return models.lenet()
    return models.mlp([784, 500, 500, outputs], activation=jax.nn.relu)


@lru_cache(maxsize=2)
def _learner(about: str) -> Estimator:
    """Kept, so that the next trial is not compiled again."""
    world, options = json.loads(about)
    outputs, likelihood, _ = target(world, options["method"])
    model = network(world, outputs)
    if options["method"] == "self_tuning":
        return lines.self_tuning(model, likelihood, options)
    return lines.learner(model, likelihood, options)


def _standardised(stream: Stream) -> Stream:
    examples = stream.examples
    return Stream(examples._replace(y=(np.asarray(examples.y) - CENTRE) / SPREAD))


def _standardised_tests(tests: evaluate.Tests) -> evaluate.Tests:
    def scaled(step: int) -> Any:
        examples = tests(step)
        return examples._replace(y=(np.asarray(examples.y) - CENTRE) / SPREAD)

    return scaled
