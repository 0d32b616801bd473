"""A learner and what it believes, over a network that grows as its rows need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from bayestream.estimators import grow
from bayestream.types import Estimator, State


class Growing:
    """A learner of one size after another, and its state.

    What is drawn for new weights depends on the seed and on the size alone, and for new inputs not
    on the outputs: when a network grows, and for whose label, leaves no trace in it.
    """

    def __init__(
        self, make: Callable[[Sequence[int]], Estimator], sizes: Sequence[int], *, seed: int
    ) -> None:
        """`make` is given the sizes of layers; `sizes` are those to begin with."""
        self.make, self.sizes, self.seed = make, list(sizes), seed
        self.learner = make(self.sizes)
        self.state: State = None  # before `begin`

    def begin(self) -> None:
        """From the prior."""
        self.state = self.learner.init(jax.random.key(self.seed))

    def grow(self, *, inputs: int, outputs: int) -> None:
        """To so many of each, if there are fewer."""
        _, for_inputs, for_outputs = jax.random.split(jax.random.key(self.seed), 3)
        for place, size, key in ((0, inputs, for_inputs), (-1, outputs, for_outputs)):
            if size > self.sizes[place]:
                self.sizes[place] = size
                larger = self.make(self.sizes)
                key = jax.random.fold_in(key, size)
                self.state = grow(self.learner, self.state, larger, key)
                self.learner = larger
