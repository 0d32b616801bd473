"""Whether learners of a fleet are those of a fleet of one, and of `bs.run`: a line for each."""

import sys

import jax
import numpy as np

import bayestream as bs

NETWORK, CLASSES = bs.models.mlp([5, 20, 3]), bs.likelihoods.categorical()
LEARNERS = {
    "lofi": lambda: bs.lofi(NETWORK, CLASSES, rank=5, decay=0.99),
    "vdekf": lambda: bs.vdekf(NETWORK, CLASSES),
    "self-tuning": lambda: bs.self_tuning([5, 20, 3], CLASSES),
    "replay-sgd": lambda: bs.replay_sgd(NETWORK, CLASSES),
}


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def main(method):
    learner = LEARNERS[method]()
    rng = np.random.default_rng(0)
    keys, x = rng.integers(0, 9, 300), rng.normal(size=(300, 5)).astype(np.float32)
    y, key = rng.integers(0, 3, 300), jax.random.key(1)
    start = learner.init(jax.random.key(0))
    fleet = bs.fleet(learner, start)
    records = fleet.run(keys, (x, y), key=key)
    for name in fleet.keys[:3]:
        own = keys == name
        alone = bs.fleet(learner, start)
        kept = alone.run(keys[own], (x[own], y[own]), key=key).values
        state, run = bs.run(learner, start, (x[own], y[own]), key=key, progress=False)
        for one, values in ((alone.of(name), kept), (state, run.values)):
            equal = same(fleet.of(name), one) and same(records.of(name), values)
            print("equal" if equal else "not")


if __name__ == "__main__":
    main(sys.argv[1])
