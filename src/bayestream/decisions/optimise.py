"""Bayesian optimisation: where to evaluate a costly function next, by what a network believes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from bayestream.checks import check_made_by, check_whole
from bayestream.decisions import spaces, surrogates
from bayestream.decisions.acquisitions import Acquisition, Score, expected_improvement
from bayestream.decisions.spaces import Coordinates, Point, Space
from bayestream.decisions.surrogates import Surrogate
from bayestream.types import Array, Key, State


class Units(NamedTuple):
    """What values are told in: standardised, and above the median only their logarithm counts.

    How bad a bad value is says little of where the minimum lies, and can hide all the rest.
    """

    median: float = 0.0
    reach: float = 1.0  # from the lowest value to the median
    mean: float = 0.0
    deviation: float = 1.0

    def of(self, values: Any) -> Any:
        """The values in these units."""
        return (_bent((values - self.median) / self.reach) - self.mean) / self.deviation


class OptimiserState(NamedTuple):
    """What has been evaluated, and what is believed of the rest."""

    points: NDArray[np.float64]  # (n, d) in the cube [-1, 1]^d
    values: NDArray[np.float64]  # (n,); NaN where the evaluation failed
    design: NDArray[np.float64]  # the points to begin with
    prior: State  # what the surrogate believes of no values,
    belief: State  # and of these
    units: Units  # that the belief is about
    relearnt: int  # how many values there were when it was last learnt from the start

    @property
    def failed(self) -> int:
        """How many evaluations have failed."""
        return int(np.isnan(self.values).sum())


class Optimiser(NamedTuple):
    """Pure functions that choose points of a space and learn from the values there."""

    init: Callable[[Key], OptimiserState]
    ask: Callable[[OptimiserState, Key], Point]  # where to evaluate next
    tell: Callable[[OptimiserState, Mapping[str, Any], float], OptimiserState]
    best: Callable[[OptimiserState], tuple[Point, float]]  # the lowest value, and where it was


def optimiser(
    space: Space,
    *,
    surrogate: Surrogate | None = None,
    acquisition: Acquisition | None = None,
    first: int | None = None,
) -> Optimiser:
    """Minimise a function of which each value is costly, by a network that learns it online.

    A value is learnt when it is told. When their number has grown by a quarter, the units are
    taken anew and the network learns all of them from its prior. A NaN, of an evaluation that
    failed, is not learnt, but its point is not asked for again. To maximise, tell −value.

    Args:
        space: a mapping from names to `bs.spaces.real`, `whole` or `choice`.
        surrogate: from `bs.surrogates`; `waves`, unless told otherwise.
        acquisition: from `bs.acquisitions`; `expected_improvement()`, unless told otherwise.
        first: how many points to begin with, spread evenly (a Sobol sequence, shifted); two more
            than there are coordinates, unless told otherwise.

    >>> import bayestream as bs
    >>> space = {"rate": bs.spaces.real(1e-4, 1.0, log=True), "layers": bs.spaces.whole(1, 3)}
    >>> optimiser = bs.optimise.optimiser(space)
    >>> state = optimiser.init(jax.random.key(0))
    >>> point = optimiser.ask(state, jax.random.key(1))
    >>> state = optimiser.tell(state, point, 0.7)
    >>> optimiser.best(state) == (point, 0.7)
    True
    """
    spaces.check_space(space)
    size = spaces.dimensions(space)
    count = size + 2 if first is None else first
    check_whole("first", count, 2)
    chosen = surrogates.waves(size) if surrogate is None else surrogate
    check_made_by("surrogate", chosen, Surrogate, "bayestream.surrogates")
    learner = chosen.learner
    if (learner.model.inputs, learner.model.outputs) != ((size,), 1):
        raise ValueError(
            f"surrogate must have {size} inputs, the coordinates of the space, and one output, "
            f"got {learner.model.inputs} and {learner.model.outputs}."
        )
    acquire = expected_improvement() if acquisition is None else acquisition

    @jax.jit
    def learnt(belief: State, xs: Array, ys: Array, start: int, stop: int) -> State:
        def one(i: Any, belief: State) -> State:
            return learner.update(learner.predict(belief), xs[i], ys[i][None])

        return jax.lax.fori_loop(start, stop, one, belief)

    @jax.jit
    def candidates(belief: State, best: Array, lowest: Array, key: Key) -> Array:
        key_score, key_search = jax.random.split(key)
        score = acquire(*chosen.believed(belief), lowest, key_score)
        return _search(score, lambda xs: spaces.nearest(space, xs), best, key_search)

    def init(key: Key) -> OptimiserState:
        key_belief, key_design = jax.random.split(key)
        sobol = qmc.Sobol(size, scramble=False).random_base2((count - 1).bit_length())[:count]
        design = 2 * ((sobol + _generator(key_design).uniform(size=size)) % 1.0) - 1
        belief = learner.init(key_belief)
        return OptimiserState(np.zeros((0, size)), np.zeros(0), design, belief, belief, Units(), 0)

    def tell(state: OptimiserState, point: Mapping[str, Any], value: float) -> OptimiserState:
        if np.shape(value) or np.asarray(value).dtype.kind not in "iuf" or np.isinf(value):
            raise ValueError(f"value must be a finite number, or NaN if it failed, got {value!r}.")
        points = np.concatenate([state.points, spaces.encode(space, point)[None]])
        values = np.append(state.values, float(value))
        state = state._replace(points=points, values=values)
        number = len(values)
        if np.isnan(value) or number < count:
            return state
        again = number >= _GROWTH * state.relearnt
        units = _units_of(values) if again else state.units
        xs, ys = _padded(points), _padded(units.of(values))
        start = 0 if again else number - 1
        belief = learnt(state.prior if again else state.belief, xs, ys, start, number)
        relearnt = number if again else state.relearnt
        return state._replace(belief=belief, units=units, relearnt=relearnt)

    def ask(state: OptimiserState, key: Key) -> Point:
        key_search, key_any = jax.random.split(key)
        anywhere = _generator(key_any).uniform(-1, 1, (_UNIFORM, size))
        if not state.relearnt:
            return _new(space, [*state.design[len(state.values) :], *anywhere], state.points)
        where = int(np.nanargmin(state.values))
        lowest = jnp.asarray(state.units.of(state.values[where]))
        offers = candidates(state.belief, jnp.asarray(state.points[where]), lowest, key_search)
        return _new(space, [*np.asarray(offers), *anywhere], state.points)

    def best(state: OptimiserState) -> tuple[Point, float]:
        if state.failed == len(state.values):
            raise ValueError("state must have at least one value for there to be a best one.")
        where = int(np.nanargmin(state.values))
        return spaces.decode(space, state.points[where]), float(state.values[where])

    return Optimiser(init, ask, tell, best)


def minimise(
    function: Callable[[Point], float], optimiser: Optimiser, *, evaluations: int, key: Key
) -> OptimiserState:
    """Ask, evaluate and tell, so many times.

    Args:
        function: of a point, a mapping from the space's names to values; NaN if it failed.
        optimiser: from `optimiser`.
        evaluations: how many.
        key: of all that is random.

    >>> import bayestream as bs
    >>> optimiser = bs.optimise.optimiser(bs.spaces.box([-2.0, -2.0], [2.0, 2.0]))
    >>> state = bs.optimise.minimise(lambda point: point["x1"] ** 2 + point["x2"], optimiser,
    ...                              evaluations=3, key=jax.random.key(0))
    >>> point, value = optimiser.best(state)
    >>> state.points.shape, bool(value == state.values.min())
    ((3, 2), True)
    """
    check_whole("evaluations", evaluations, 1)
    key_init, key_asks = jax.random.split(key)
    state = optimiser.init(key_init)
    for key_ask in jax.random.split(key_asks, evaluations):
        point = optimiser.ask(state, key_ask)
        state = optimiser.tell(state, point, function(point))
    return state


_GROWTH = 1.25
_UNIFORM, _NEAR = 500, 500  # candidates anywhere, and near the best point so far
_GENERATIONS, _PARENTS, _CHILDREN = 3, 10, 100
_OFFERED = 32  # of which the first that is new is asked for


def _search(score: Score, nearest: Callable[[Array], Array], best: Array, key: Key) -> Array:
    """The points of largest score among candidates: anywhere, near the best, near the largest."""
    keys = jax.random.split(key, 2 + _GENERATIONS)
    anywhere = jax.random.uniform(keys[0], (_UNIFORM, best.size), best.dtype, -1.0, 1.0)
    near = _moved(jnp.tile(best, (_NEAR, 1)), keys[1], -3.0, -0.3)
    points = nearest(jnp.concatenate([anywhere, near]))
    scores, order = jax.lax.top_k(score(points), _OFFERED)

    def generation(largest: Any, now: tuple[Key, Array]) -> tuple[Any, None]:
        points, scores = largest
        parents = jnp.resize(points[:_PARENTS], (_CHILDREN, best.size))
        key, most = now
        children = nearest(_moved(parents, key, most - 1, most))
        points, scores = jnp.concatenate([points, children]), jnp.append(scores, score(children))
        scores, order = jax.lax.top_k(scores, _OFFERED)
        return (points[order], scores), None

    steps = -0.5 * jnp.arange(1.0, _GENERATIONS + 1, dtype=best.dtype)
    (points, _), _ = jax.lax.scan(generation, (points[order], scores), (keys[2:], steps))
    return points


def _moved(points: Array, key: Key, least: Any, most: Any) -> Array:
    """Some coordinates of each point moved, by steps of a size between these powers of ten.

    In many dimensions a step in all of them at once is seldom a better one.
    """
    count, size = points.shape
    keys = jax.random.split(key, 4)
    sizes = 10 ** jax.random.uniform(keys[0], (count, 1), points.dtype, least, most)
    shares = jnp.maximum(jax.random.uniform(keys[1], (count, 1)), 1 / size)
    which = jax.random.uniform(keys[2], points.shape) < shares
    steps = sizes * jax.random.normal(keys[3], points.shape, points.dtype)
    return jnp.clip(points + jnp.where(which, steps, 0.0), -1.0, 1.0)


def _new(space: Space, candidates: list[Coordinates], seen: NDArray[np.float64]) -> Point:
    """The first of the candidates that was not evaluated yet; the first, if all of them were."""
    for candidate in candidates:
        point = spaces.decode(space, candidate)
        if not (seen == spaces.encode(space, point)).all(axis=1).any():
            return point
    return spaces.decode(space, candidates[0])


def _units_of(values: NDArray[np.float64]) -> Units:
    seen = values[~np.isnan(values)]
    median = float(np.median(seen))
    # Of values that are all the same, any unit will do.
    reach = float(median - seen.min()) or float(np.ptp(seen)) or 1.0
    bent = _bent((seen - median) / reach)
    return Units(median, reach, float(bent.mean()), float(bent.std()) or 1.0)


def _bent(distances: Any) -> Any:
    return np.where(distances > 0, np.log1p(np.maximum(distances, 0.0)), distances)


def _padded(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """With room for more, so that a program serves many lengths; NaN is a missing value."""
    room = 64
    while room < len(rows):
        room *= 4
    return np.concatenate([rows, np.full((room - len(rows), *rows.shape[1:]), np.nan)])


def _generator(key: Key) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
