"""What a learner is, in words that a checkpoint can keep: its method and its settings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast

import numpy as np
from jax.core import Tracer

from bayestream.types import Estimator

P = ParamSpec("P")
_NOT_SETTINGS = ("model", "likelihood")  # a checkpoint describes them by what they do
_MOST = 32  # numbers of an array that are written out


def described(factory: Callable[P, Estimator]) -> Callable[P, Estimator]:
    """The factory, whose learners know what they were made with.

    >>> import bayestream as bs
    >>> bs.vdekf(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0), drift=0.1).description[:34]
    '{"method": "vdekf", "settings": {"'
    """
    signature = inspect.signature(factory)

    @wraps(factory)
    def make(*args: P.args, **kwargs: P.kwargs) -> Estimator:
        learner = factory(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        settings = {k: v for k, v in given.arguments.items() if k not in _NOT_SETTINGS}
        return learner._replace(description=description(factory.__name__, settings))

    return make


def description(method: str, settings: dict[str, Any]) -> str:
    """As JSON, and so that equal settings have equal descriptions."""
    said = {name: _said(value) for name, value in settings.items()}
    return json.dumps({"method": method, "settings": said}, sort_keys=True)


def _said(value: Any) -> Any:
    """A number, or a few of them, as they are; of a function or a value of ours, the name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tracer):
        return "traced"
    if isinstance(value, Estimator):
        return json.loads(value.description) if value.description else None
    if isinstance(value, list):
        return [_said(each) for each in cast(list[Any], value)]
    if hasattr(value, "dtype") and np.size(value) <= _MOST:
        return np.asarray(value).tolist()
    return getattr(value, "__qualname__", type(value).__name__)
