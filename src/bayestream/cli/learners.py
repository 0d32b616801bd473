"""The learner that a command line, or a file of options, describes."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import typer

from bayestream import estimators, likelihoods
from bayestream.averaging import measured, self_tuning
from bayestream.checks import check_choice
from bayestream.cli.sources import Source, network
from bayestream.networks import models
from bayestream.tuning import tune
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood

Method = Annotated[
    str | None,
    typer.Option(
        help="One of "
        + ", ".join(estimators.REGISTRY)
        + "; unless given, an average over settings of lofi that were measured (`run`), or lofi.",
        autocompletion=lambda: [*estimators.REGISTRY],
    ),
]
Rank = Annotated[int | None, typer.Option(help="The rank of lofi and its kin.")]
Hidden = Annotated[str, typer.Option(help="Units of the hidden layers, such as 50 or 100,50.")]
Noise = Annotated[
    float | None, typer.Option(help="Variance of the standardised target; learnt if not given.")
]

SELF_TUNING = "self_tuning"
_FIXED = ("hilofi", "slang")  # what `bs.grow` refuses

# In standard deviations of the forecast, where the noise is Gaussian; a t has no need of it.
OUTLIER_THRESHOLD = 4.0


class Settings(NamedTuple):
    """What a learner is made from."""

    method: str  # SELF_TUNING, or one of the registry
    options: dict[str, Any]
    noise: float | None = None  # of a standardised target; None learns it from the stream


def settings(
    method: str | None,
    *,
    rank: int | None = None,
    noise: float | None = None,
    given: Sequence[str] = (),
    config: Path | None = None,
    otherwise: str = "lofi",
) -> Settings:
    """From options, over those of a TOML file as `bayestream tune` writes it.

    Where neither names a method it is `otherwise`, or lofi if it has options of its own.
    """
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
    chosen = method or read.get("method", "lofi" if options else otherwise)
    if rank is not None:
        options["rank"] = rank
    return Settings(chosen, options, read.get("noise") if noise is None else noise)


def layers(source: Source, hidden: str) -> list[int]:
    """The sizes of the network's layers, from the source's inputs to its outputs."""
    return between(source.inputs, hidden, source.outputs)


def between(inputs: int, hidden: str, outputs: int) -> list[int]:
    """The sizes of a network's layers, with those hidden as on the command line."""
    try:
        sizes = [int(size) for size in hidden.split(",") if size.strip()]
    except ValueError:
        raise ValueError(f"--hidden must be sizes such as 50 or 100,50, got {hidden}.") from None
    return [inputs, *sizes, outputs]


def grows(method: str) -> bool:
    """Whether a network can grow as it learns.

    >>> grows("lofi"), grows("hilofi")
    (True, False)
    """
    return method not in _FIXED


def likelihood_of(
    source: Source, noise: float | None, known: int | None = None
) -> Likelihood | EvolvingLikelihood:
    """Classes are categorical; numbers Student's t as learnt, or Gaussian with a noise given.

    Of classes beyond so many, none has a probability before it is seen.
    """
    if source.task == "classification":
        if known is not None:
            return likelihoods.adaptive_categorical(known=known)
        return likelihoods.categorical()
    return likelihoods.adaptive_student_t() if noise is None else likelihoods.gaussian(noise)


def robust(source: Source, chosen: Settings) -> Settings:
    """The settings, with outliers among numbers weighed unless they say otherwise."""
    takes = inspect.signature(check_choice("method", chosen.method, estimators.REGISTRY)).parameters
    if source.task == "classification" or "outlier_threshold" not in takes:
        return chosen
    return chosen._replace(options={"outlier_threshold": OUTLIER_THRESHOLD, **chosen.options})


def learner(
    source: Source,
    sizes: Sequence[int],
    chosen: Settings,
    *,
    began: Sequence[int] | None = None,
) -> Estimator:
    """The estimator for this source; of a network that grows, with the sizes it began with."""
    fan_in, known = (None, None) if began is None else (began[0], began[-1])
    gaussian = chosen.method != SELF_TUNING and chosen.noise is not None
    return built(
        sizes,
        likelihood_of(source, chosen.noise, known),
        robust(source, chosen) if gaussian else chosen,
        fan_in=fan_in,
    )


def built(
    sizes: Sequence[int],
    believed: Likelihood | EvolvingLikelihood,
    chosen: Settings,
    *,
    fan_in: int | None = None,
) -> Estimator:
    """The estimator of these settings, over a network of these sizes."""
    if chosen.method == SELF_TUNING:
        return self_tuning(sizes, believed, fan_in=fan_in, **chosen.options)
    space = estimators.SPACES.get(chosen.method, {})
    model = models.mlp(sizes, fan_in=fan_in)
    return tune.build(chosen.method, model, believed, {}, space, chosen.options)


def sentence(source: Source, method: str, learner: Estimator) -> str:
    """What learns from what, for people."""
    weights = f"{method}, {learner.model.size:,} weights"
    return f"{weights}, {network(source.task, learner.model.inputs[0], learner.model.outputs)}"


def summary(source: Source, method: str, learner: Estimator) -> dict[str, Any]:
    """The same, for machines."""
    model = learner.model
    sizes = {"inputs": model.inputs[0], "outputs": model.outputs}
    return {"method": method, "weights": model.size, **source.summary(), **sizes}


def drifts(source: Source, chosen: Settings) -> list[str]:
    """Of the settings that are averaged over, in words; none where there is one learner."""
    if chosen.method != SELF_TUNING:
        return []
    return [
        f"drift {setting['drift']:g}{' (linear)' * (setting['activation'] is jax.nn.identity)}"
        for setting in measured(likelihood_of(source, chosen.noise))
    ]
