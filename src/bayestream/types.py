"""The nouns everything speaks: model, likelihood, estimator, stream, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Key = jax.Array
State = Any  # a pytree that only its estimator looks into
Schedule = Callable[[Array], Array | float]
ScalarOrSchedule = float | Schedule


def at(value: ScalarOrSchedule, step: Array, dtype: Any) -> Array:
    """The value of a number or schedule at a step (0 for the first), in the belief's dtype."""
    return jnp.asarray(value(step) if callable(value) else value, dtype)


Layered = tuple[jax.Array, ...]
Linearized = tuple[jax.Array, Layered, Callable[[jax.Array], Layered]]


class Layer(NamedTuple):
    """A dense layer's place in the flat vector: (rows, outputs) row-major, the bias last."""

    offset: int
    inputs: int
    outputs: int
    scale: float  # the forward pass multiplies the kernel by this; 1 unless fan-in scaled
    bias: bool = True  # whether it has one

    @property
    def rows(self) -> int:
        """Of its kernel, and one for the bias: as many as it has activations."""
        return self.inputs + self.bias


class Model(NamedTuple):
    """A network as a pure function of one flat parameter vector (P,) and one input."""

    init: Callable[[Key], Array]  # key → parameters (P,)
    apply: Callable[[Array, Array], Array]  # (parameters, x) → η (C,)
    unravel: Callable[[Array], Any]  # parameters → the pytree they came from
    size: int  # P
    inputs: tuple[int, ...]  # the shape of one x
    outputs: int  # C
    # (parameters, x) → η, the activations (inputs_l,) of each layer in the order of the flat
    # vector, and a function from ∂/∂η (C,) to the layers' deltas (outputs_l,); see `rows.Rows`.
    linearize: Callable[[Array, Array], Linearized]
    layers: tuple[Layer, ...] = ()  # where its dense layers lie
    # What comes between the layers, where these, one after another, are all there is
    activation: Callable[[Array], Array] | None = None


class Likelihood(NamedTuple):
    """p(y | η) for a network output η (C,), in the form that conditioning needs.

    With B Bᵀ the Fisher information in η and B v = ∂log p/∂η, an observation acts on the
    weights exactly as a unit-noise Gaussian one with Jacobian Bᵀ ∂η/∂θ and residual v. Where y is
    a vector of which some entries are NaN, all that takes y is of the others alone.
    """

    log_density: Callable[[Array, Array], Array]  # (η, y) → log p(y | η)
    score: Callable[[Array, Array], Array]  # (η, y) → ∂log p/∂η (C,)
    seen: Callable[[Array, Array], tuple[Array, Array]]  # (η, y) → B (C, K) and v (K,)
    # (η, y) → B and v once more, B v = score, but with at least the curvature that the error itself
    # implies: where the Fisher information has vanished, a step would overshoot without end
    secant: Callable[[Array, Array], tuple[Array, Array]]
    mean: Callable[[Array], Array]  # η → E[y]
    covariance: Callable[[Array], Array]  # η → Cov[y] (C, C)
    sample: Callable[[Key, Array], Array]  # (key, η) → y
    missing: Callable[[Array], Array]  # y → is the label missing?
    support: Callable[[Array, int], Array]  # (y, C) → is y a possible value?
    target_shapes: Callable[[int], tuple[tuple[int, ...], ...]]  # C → shapes y may have
    expects: str  # what a possible value is, in words
    name: str  # what it is called where another kind is refused
    # η → s (C,) and ν () of a student_t, whatever the values in η; its forecasts are made of them
    scale_and_dof: Callable[[Array], tuple[Array, Array]] | None = None
    # η (…, C) → logits for a forecast of classes, where these are not η: some are not there yet
    logits: Callable[[Array], Array] | None = None
    # K, where B Bᵀ is only the information about y, the most probable classes and all the rest as
    # one, and a forecast looks for doubt in the K most probable alone; None: in all
    columns: int | None = None


class EvolvingLikelihood(NamedTuple):
    """A likelihood that changes along the stream; what it carries lives in the state."""

    init: Callable[[int, Any], Any]  # (C, dtype) → carry
    at: Callable[[Any, Array], Likelihood]  # (carry, step) → the likelihood now
    # (carry, η (N,C), y (N,…), trust (N,), kept=1) → carry; what was not observed has no trust, 0.
    # `kept` (N,) is how much of its error each example keeps after the update, R/(H Σ Hᵀ + R).
    adapt: Callable[..., Any]


class Estimator(NamedTuple):
    """A learner: pure functions that jit, vmap, scan and donate; made by a factory.

    `key` is needed by the few estimators whose update draws random numbers; others ignore it.
    """

    model: Model
    likelihood: Callable[[State], Likelihood]  # p(y | η) as believed now
    init: Callable[[Key], State]
    predict: Callable[[State], State]  # one step of the dynamics
    update: Callable[..., State]  # (state, x, y, key=None): condition on one observation
    update_batch: Callable[..., State]  # (state, X, Y, key=None): one joint conditioning
    mean: Callable[[State], Array]  # the parameters (P,)
    covariance_between: Callable[[State, Array], Array] | None  # (state, J (n, P)) → J Σ Jᵀ
    # (state, `rows.Rows` of N examples) → each one's G Σ Gᵀ (N, K, K), never an N×K×P array
    covariance_of: Callable[[State, Any], Array] | None
    sample: Callable[[State, Key, int], Array] | None  # (state, key, n) → parameters (n, P)
    refused: Callable[[State], Array]  # how many updates were not made: they were not finite
    # (state, x) → its own forecast, where that is more than `mean` and `covariance_of` can say
    forecast: Callable[[State, Any], Any] | None = None
    description: str = ""  # its method and settings, as JSON; see `estimators.description`
    networks: tuple[Model, ...] = ()  # those of an average's settings; else it is `model` alone


class Example(NamedTuple):
    """One observation, or with a leading axis on every field, many."""

    x: Any
    y: Any
    task: Any = 0  # which stretch between change points it comes from
    delay: Any = 0  # how many steps after x its label arrives, and can be learnt


@dataclass(frozen=True)
class Stream:
    """A finite stream held in memory: iterate it, cut it, shuffle it, run it.

    >>> stream = Stream(Example(x=np.arange(6.0).reshape(3, 2), y=np.arange(3.0)))
    >>> len(stream), len(stream.take(2)), float(stream.shuffle(0).examples.y.sum())
    (3, 2, 3.0)
    """

    examples: Example

    def __post_init__(self) -> None:
        x, y, *rest = self.examples
        count = len(x)
        rest = (np.full(count, field) if np.ndim(field) == 0 else field for field in rest)
        object.__setattr__(self, "examples", Example(x, y, *rest))

    def __len__(self) -> int:
        return len(self.examples.x)

    def __iter__(self) -> Iterator[Example]:
        return (self._at(index) for index in range(len(self)))

    def _at(self, index: Any) -> Example:
        return Example(*(field[index] for field in self.examples))

    def take(self, count: int) -> Stream:
        """The first `count` examples."""
        return Stream(self._at(slice(count)))

    def select(self, positions: Any) -> Stream:
        """The examples at these positions, in that order."""
        return Stream(self._at(np.asarray(positions, int)))

    def shuffle(self, seed: int) -> Stream:
        """The same examples in an order drawn from `seed`."""
        return self.select(np.random.default_rng(seed).permutation(len(self)))
