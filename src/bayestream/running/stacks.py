"""Learners side by side, in states with a leading axis; a thread each for some of them.

Learners are visited one after another, each by the very loop of `run`: what one learns depends on
its own rows alone, to the last bit, whoever else is there. Under vmap it would not: XLA adds
numbers up in another order for another width.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.networks.native import in_use
from bayestream.running.chunks import padded
from bayestream.running.run import Record, along
from bayestream.types import Array, Estimator, Example, Key, State

_FEWEST = 8  # learners that a stack has room for
_SHORTEST = 64  # rows of a program


class Visits(NamedTuple):
    """Which learners of a stack have examples, one after another, and where these end."""

    slots: Any
    ends: Any  # each one's examples begin where the last one's end


class _Job(NamedTuple):
    """What one stack is to learn."""

    stack: int
    rows: NDArray[Any]  # which of all, those of each learner together
    visits: Visits


class Stacks:
    """Learners by their number: n is in slot n // threads of stack n % threads."""

    def __init__(self, learner: Estimator, states: State, *, threads: int) -> None:
        """`states` has a leading axis; a stack is a thread's, and no other's."""
        self._learner = learner
        self._states = [_placed(_each(states, slice(at, None, threads))) for at in range(threads)]
        self._refused = [refused_by(learner, stack) for stack in self._states]
        self._size = _SHORTEST
        self._ready: set[Any] = set()  # programs that have been compiled

    def room(self, count: int, start: State) -> None:
        """Have room for so many learners; until they are put, those to come are at their start."""

        def longer(stack: Any, leaf: Any) -> NDArray[Any]:
            more = np.repeat(np.asarray(leaf)[None], capacity - len(stack), 0)
            return np.concatenate([np.asarray(stack), more])  # NumPy compiles nothing

        capacity = max(_FEWEST, self._capacity())
        while capacity * len(self._states) < count:
            capacity *= 2
        for at, states in enumerate(self._states):
            if len(jax.tree.leaves(states)[0]) < capacity:
                self._states[at] = _placed(jax.tree.map(longer, states, start))
                self._refused[at] = longer(self._refused[at], self._learner.refused(start))

    def put(self, number: int, state: State) -> None:
        """Another state for a learner."""
        stack, slot = self._place(number)
        self._states[stack] = _put(self._states[stack], np.int32(slot), state)
        self._refused[stack][slot] = self._learner.refused(state)

    def of(self, number: int) -> State:
        """A copy of a learner's state."""
        stack, slot = self._place(number)
        return _placed(_each(self._states[stack], slot))

    def first(self, count: int) -> State:
        """The states of the first so many learners, in NumPy, with a leading axis."""

        def joined(*stacks: Any) -> NDArray[Any]:
            found = np.empty((count, *stacks[0].shape[1:]), stacks[0].dtype)
            for at, stack in enumerate(stacks):
                own = found[at :: len(stacks)]
                own[...] = np.asarray(stack)[: len(own)]
            return found

        return jax.tree.map(joined, *self._states)

    def refused(self, count: int) -> list[int]:
        """How many updates each of the first so many learners has refused."""
        places = map(self._place, range(count))
        return [int(self._refused[stack][slot]) for stack, slot in places]

    def learn(
        self,
        numbers: NDArray[Any],
        examples: Example,
        positions: NDArray[Any],
        *,
        record: Record | None,
        key: Key | None,
        size: int = 1,
    ) -> tuple[Any, NDArray[Any]]:
        """What was recorded of each example, which learner `numbers` says has learnt, and was lost.

        `positions` are those among a learner's own examples, of which its random numbers are made.
        Examples are padded to the most that there have been, or to `size`, in powers of two: few
        programs serve all.
        """
        while self._size < max(size, len(numbers)):
            self._size *= 2
        jobs = list(self._jobs(numbers))
        work = partial(self._work, examples, positions, record, key)
        program = (record, self._capacity(), self._size, key is None)
        if program in self._ready and len(jobs) > 1:
            with ThreadPoolExecutor(len(jobs)) as threads:
                parts = list(threads.map(work, jobs))
        else:  # compiled once, not once a thread
            parts = list(map(work, jobs))
            self._ready.add(program)
        places = np.argsort(np.concatenate([job.rows for job in jobs]))
        return jax.tree.map(lambda *rows: np.concatenate(rows)[places], *parts)

    def _jobs(self, numbers: NDArray[Any]) -> Iterable[_Job]:
        """For each stack that has any; for the first one always, since it says what is recorded."""
        for at in range(len(self._states)):
            (rows,) = np.nonzero(numbers % len(self._states) == at)
            if len(rows) or at == 0:
                slots = numbers[rows] // len(self._states)
                rows = rows[np.argsort(slots, kind="stable")]
                slots, counts = np.unique(slots, return_counts=True)
                yield _Job(at, rows, Visits(slots, np.cumsum(counts)))

    def _work(
        self,
        examples: Example,
        positions: NDArray[Any],
        record: Record | None,
        key: Key | None,
        job: _Job,
    ) -> tuple[Any, NDArray[Any]]:
        at, rows, visits = job
        self._states[at], (kept, counts) = _steps(
            self._learner,
            record,
            self._states[at],
            padded(visits, self._size),
            len(visits.slots),
            *padded((_each(examples, rows), positions[rows]), self._size),
            key,
        )
        kept, counts = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(rows)], (kept, counts))
        before = np.roll(counts, 1)
        before[visits.ends[:-1]] = self._refused[at][visits.slots[1:]]
        before[:1] = self._refused[at][visits.slots[:1]]
        self._refused[at][visits.slots] = counts[visits.ends - 1]
        return kept, counts > before

    def _place(self, number: int) -> tuple[int, int]:
        return number % len(self._states), number // len(self._states)

    def _capacity(self) -> int:
        return len(jax.tree.leaves(self._states[0])[0])


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _steps(
    estimator: Estimator,
    record: Record | None,
    states: State,
    visits: Visits,
    count: int,
    examples: Example,
    positions: Array,
    key: Key | None,
) -> tuple[State, Any]:
    """The states after the first `count` visits, each learner having learnt its own examples.

    Also what was recorded of each, and how many updates its learner had refused by then.
    """
    alone = partial(along, estimator, record)

    def visit(index: Array, carry: tuple[State, Any]) -> tuple[State, Any]:
        states, kept = carry
        slot, end = visits.slots[index], visits.ends[index]
        first = jnp.where(index > 0, visits.ends[index - 1], 0)
        state = _taken(states, visits.slots, index)
        state, kept = alone(state, examples, positions, end, key, first=first, kept=kept)
        return _with(states, slot, state), kept

    start = _each(states, 0)
    _, kept = jax.eval_shape(alone, start, examples, positions, 0, key)
    rows = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept)
    return jax.lax.fori_loop(0, count, visit, (states, rows))


def refused_by(learner: Estimator, states: State) -> NDArray[Any]:
    """How many updates each of these learners has refused."""
    count = len(jax.tree.leaves(states)[0])
    # One after another: an estimator's own functions are of one state, and there may be none.
    return np.array([int(learner.refused(_each(states, slot))) for slot in range(count)], int)


def _each(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _taken(states: State, slots: Array, index: Array) -> State:
    """The state in a visit's slot: one call, where XLA would take one a leaf, on several threads.

    The call asks memory for the next visit's as well, which comes while this one is worked on.
    """
    if in_use() == "jax":
        return _each(states, slots[index])
    stacks, structure = jax.tree.flatten(states)
    kinds = [jax.ShapeDtypeStruct(stack.shape[1:], stack.dtype) for stack in stacks]
    take = jax.ffi.ffi_call("bayestream_stack_take", kinds)
    leaves = take(index.astype(jnp.int32), slots.astype(jnp.int32), *stacks)
    return jax.tree.unflatten(structure, leaves)


def _with(states: State, slot: Array, state: State) -> State:
    """The states with another in that slot, in the memory of the old."""
    if in_use() == "jax":
        put = partial(jax.lax.dynamic_update_index_in_dim, index=slot, axis=0)
        return jax.tree.map(put, states, state)
    stacks, structure = jax.tree.flatten(states)
    kinds = [jax.ShapeDtypeStruct(stack.shape, stack.dtype) for stack in stacks]
    places = {1 + place: place for place in range(len(stacks))}
    put = jax.ffi.ffi_call("bayestream_stack_put", kinds, input_output_aliases=places)
    leaves = put(slot.astype(jnp.int32), *stacks, *jax.tree.leaves(state))
    return jax.tree.unflatten(structure, leaves)


_put = jax.jit(_with, donate_argnums=0)


def _placed(tree: Any) -> Any:
    """In JAX's own memory: what is donated must not be anybody else's."""
    return jax.device_put(jax.tree.map(np.asarray, tree), may_alias=False)
