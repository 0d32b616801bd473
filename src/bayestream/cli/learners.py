"""The learner that a command line, or a file of options, describes."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from bayestream import estimators, likelihoods
from bayestream.checks import check_choice
from bayestream.cli.sources import Source
from bayestream.networks import models
from bayestream.tuning import tune
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model

Method = Annotated[
    str | None, typer.Option(help=f"lofi, or one of {', '.join(estimators.REGISTRY)}.")
]
Rank = Annotated[int | None, typer.Option(help="The rank of lofi and its kin.")]
Hidden = Annotated[str, typer.Option(help="Units of the hidden layers, such as 50 or 100,50.")]


# In standard deviations of the forecast, where the noise is Gaussian; a t has no need of it.
OUTLIER_THRESHOLD = 4.0


class Settings(NamedTuple):
    """What a learner is made from."""

    method: str
    options: dict[str, Any]
    noise: float | None = None  # of a standardised target; None learns it from the stream


def settings(
    method: str | None,
    *,
    rank: int | None = None,
    noise: float | None = None,
    given: Sequence[str] = (),
    config: Path | None = None,
) -> Settings:
    """From options, over those of a TOML file as `bayestream tune` writes it."""
    read: Mapping[str, Any] = {} if config is None else tomllib.loads(config.read_text("utf-8"))
    unknown = set(read) - {"method", "noise", "options"}
    if unknown:
        raise ValueError(f"{config} must have method, noise and [options], got {min(unknown)!r}.")
    same = method is None or method == read.get("method", method)
    options = dict(read.get("options", {})) if same else {}
    for item in given:
        name, _, value = item.partition("=")
        try:
            options[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            raise ValueError(f"--set must be name=value, such as drift=1e-5, got {item}.") from None
    if rank is not None:
        options["rank"] = rank
    chosen = method or read.get("method", "lofi")
    return Settings(chosen, options, read.get("noise") if noise is None else noise)


def network(source: Source, hidden: str) -> Model:
    """A multi-layer perceptron for the source's inputs and outputs."""
    try:
        sizes = [int(size) for size in hidden.split(",") if size.strip()]
    except ValueError:
        raise ValueError(f"--hidden must be sizes such as 50 or 100,50, got {hidden}.") from None
    return models.mlp([source.inputs, *sizes, source.outputs])


def likelihood_of(source: Source, noise: float | None) -> Likelihood | EvolvingLikelihood:
    """Classes are categorical; numbers Student's t as learnt, or Gaussian with a noise given."""
    if source.task == "classification":
        return likelihoods.categorical()
    return likelihoods.adaptive_student_t() if noise is None else likelihoods.gaussian(noise)


def robust(source: Source, chosen: Settings) -> Settings:
    """The settings, with outliers among numbers weighed unless they say otherwise."""
    takes = inspect.signature(check_choice("method", chosen.method, estimators.REGISTRY)).parameters
    if source.task == "classification" or "outlier_threshold" not in takes:
        return chosen
    return chosen._replace(options={"outlier_threshold": OUTLIER_THRESHOLD, **chosen.options})


def learner(source: Source, model: Model, chosen: Settings) -> Estimator:
    """The estimator for this source."""
    space = estimators.SPACES.get(chosen.method, {})
    options = chosen.options if chosen.noise is None else robust(source, chosen).options
    believed = likelihood_of(source, chosen.noise)
    return tune.build(chosen.method, model, believed, {}, space, options)
