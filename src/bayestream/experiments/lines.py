"""From a line of a picture, as plain data, to its learner; here strings become values."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bayestream import estimators
from bayestream.averaging import averaged, grid, measured
from bayestream.averaging import self_tuning as averaged_settings
from bayestream.checks import check_choice
from bayestream.estimators import inflation
from bayestream.estimators.line_search import DEFAULT
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model

# The paper's filters take the full step; a line of ours says `line_search = true`.
_SEARCHING = ("fcekf", "fdekf", "hilofi", "lofi", "lofi_spherical", "vdekf")
_INFLATIONS: dict[str, Callable[[float], Any]] = {
    "bayesian": inflation.bayesian,
    "hybrid": inflation.hybrid,
    "simple": inflation.simple,
}
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": jax.nn.gelu,
    "identity": jax.nn.identity,
    "tanh": jnp.tanh,
}
_OPTIMISERS: dict[str, Callable[[float], Any]] = {"adam": optax.adam, "sgd": optax.sgd}


def learner(
    model: Model, likelihood: Likelihood | EvolvingLikelihood, settings: Mapping[str, Any]
) -> Estimator:
    """The learner of a line: its `method`, and options of it as TOML can write them.

    `inflation = {hybrid = 1e-3}` and `optimiser = {adam = 1e-4}` name a factory and its number;
    `line_search = true` is what is not the paper's, nor is `averaged = {drift = [0.0, 1e-5]}`: all
    settings of that grid at once.

    >>> import bayestream as bs
    >>> line = {"method": "replay_sgd", "buffer": 2, "optimiser": {"adam": 1e-3}}
    >>> found = learner(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1), line)
    >>> found.model.size
    3
    """
    options = dict(settings)
    if "averaged" in options:
        choices = options.pop("averaged")
        return averaged(
            lambda **choice: learner(model, likelihood, {**options, **choice}), grid(**choices)
        )
    method = options.pop("method")
    if method in _SEARCHING:
        options["line_search"] = DEFAULT if options.pop("line_search", False) else None
    for name, factories in (("inflation", _INFLATIONS), ("optimiser", _OPTIMISERS)):
        if name in options:
            [(kind, number)] = options[name].items()
            options[name] = check_choice(name, kind, factories)(number)
    return estimators.make(method, model, likelihood, **options)


def untuned(likelihood: Likelihood | EvolvingLikelihood, **options: Any) -> dict[str, Any]:
    """The line of what needs no tuning, with the settings that it averages over.

    >>> import bayestream as bs
    >>> untuned(bs.likelihoods.categorical())["settings"][0]
    {'activation': 'gelu', 'prior_precision': 0.1, 'drift': 0.0}
    """
    names = {function: name for name, function in _ACTIVATIONS.items()}
    chosen = [
        {**setting, "activation": names[setting["activation"]]} for setting in measured(likelihood)
    ]
    return {"method": "self_tuning", "settings": chosen, **options}


def self_tuning(
    model: Model, likelihood: Likelihood | EvolvingLikelihood, line: Mapping[str, Any]
) -> Estimator:
    """The learner of an untuned line, for the layers of a multi-layer perceptron."""
    sizes = [model.layers[0].inputs, *(layer.outputs for layer in model.layers)]
    options = {name: value for name, value in line.items() if name != "method"}
    options["settings"] = [
        {**setting, "activation": check_choice("activation", setting["activation"], _ACTIVATIONS)}
        for setting in options["settings"]
    ]
    return averaged_settings(sizes, likelihood, **options)


@cache
def read(name: str) -> dict[str, Any]:
    """The hyper-parameters of a group, from the TOML file beside it."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
