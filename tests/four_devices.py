"""How far learners that are divided over four devices are from those on one: a line of JSON."""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

import bayestream as bs

STEPS, RANK = 200, 4
INPUTS, HIDDEN = 5, (30, 20)  # with their biases 6, 31 and 21 rows: four divides none of them
MOVING = {"decay": 0.999, "drift": 1e-4}
CLASSES, NUMBERS = bs.likelihoods.categorical(), bs.likelihoods.gaussian(0.1)
LEARNT = bs.likelihoods.adaptive_gaussian()
CASES = {
    "lofi, classes": (bs.lofi, CLASSES, {"rank": RANK, **MOVING}),
    "lofi, numbers": (bs.lofi, NUMBERS, {"rank": RANK, **MOVING}),
    "lofi at rest": (bs.lofi, CLASSES, {"rank": RANK}),
    "lofi, back to the prior": (bs.lofi, CLASSES, {"rank": RANK, "decay": 0.999}),
    "lofi, full steps": (bs.lofi, NUMBERS, {"rank": RANK, "line_search": None, **MOVING}),
    "lofi, inflated": (
        bs.lofi,
        CLASSES,
        {"rank": RANK, "inflation": bs.inflation.bayesian(0.01), "outlier_threshold": 3.0},
    ),
    "lofi, forward": (
        bs.lofi,
        CLASSES,
        {"rank": RANK, "diagonal_update": bs.estimators.forward_kl(sweeps=2)},
    ),
    "lofi, reverse": (
        bs.lofi,
        CLASSES,
        {"rank": RANK, "diagonal_update": bs.estimators.reverse_kl(sweeps=2)},
    ),
    "lofi_spherical": (bs.lofi_spherical, NUMBERS, {"rank": RANK, **MOVING}),
    "lofi_spherical, orthogonal": (
        bs.lofi_spherical,
        NUMBERS,
        {"rank": RANK, "projection": bs.estimators.orthogonal, **MOVING},
    ),
    "lofi_spherical, orthogonal, classes": (
        bs.lofi_spherical,
        CLASSES,
        {"rank": RANK, "projection": bs.estimators.orthogonal},
    ),
    "vdekf": (bs.vdekf, CLASSES, MOVING),
    "fdekf": (bs.fdekf, LEARNT, MOVING),
}
_SENT = re.compile(r" (?:all-\w+|collective-\w+|reduce-scatter|ragged\S+)(?:-start)?\(")


def stream(likelihood, outputs):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, INPUTS))
    if likelihood is CLASSES:
        return x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    return x, np.sin(x[:, :outputs]) + 0.3 * rng.normal(size=(STEPS, outputs))


def distance(one, other):
    """The largest difference, over the largest number."""
    one, other = np.asarray(one, float), np.asarray(other, float)
    assert one.shape == other.shape
    return float(np.max(np.abs(one - other), initial=0) / (np.max(np.abs(one), initial=0) or 1))


def invariant(leaf):
    """Directions may come with another sign: what counts of W (L, P) is W Wᵀ."""
    return leaf.T @ leaf if len(np.shape(leaf)) == 2 and len(leaf) < leaf.shape[1] else leaf


def between(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(distance(invariant(a), invariant(b)) for a, b in pairs)


def sent(compiled):
    """How many numbers each array has that the program sends from device to device."""
    counts = []
    for line in compiled.as_text().splitlines():
        if found := _SENT.search(line):
            shapes = re.findall(r"\w+\[([\d,]*)\]", line[: found.start()].split(" = ")[1])
            counts += [int(np.prod([int(n) for n in s.split(",") if n] or [1])) for s in shapes]
    return counts


def places(learner):
    """Where the parameters of the ordinary network lie."""
    parts = learner.model.unravel(jnp.arange(learner.model.size))
    return np.concatenate([np.ravel(part) for pair in parts for part in pair])


def step_of(learner):
    def step(state, x, y, key):
        state = learner.predict(state)
        forecast = bs.predictive.default(learner, state, x)
        return learner.update(state, x, y, key), (forecast.mean, forecast.covariance)

    return jax.jit(step)


def draws_by_hand(learner, state, key, count):
    """θ = γ (μ + Σ (Υ^½ ε + W ξ)) + √q ε₂ with dense matrices and each device's own noise."""
    mean, diag, factor = (np.asarray(a) for a in bs.gathered(learner, state).belief.base)
    covariance = np.linalg.inv(np.diag(diag) + factor.T @ factor)
    gamma, q = float(state.belief.pending.decay), float(state.belief.pending.drift)
    own = learner.model.size // 4

    def noise(key):
        each = [jax.random.normal(jax.random.fold_in(key, device), own) for device in range(4)]
        return np.concatenate(each)[places(learner)]

    def one(key):
        base, drifting = jax.random.split(key)
        diagonal, low_rank = jax.random.split(base)
        z = np.sqrt(diag) * noise(diagonal) + jax.random.normal(low_rank, len(factor)) @ factor
        return gamma * (mean + covariance @ z) + np.sqrt(q) * noise(drifting)

    return np.stack([one(key) for key in jax.random.split(key, count)])


def case(name, mesh):
    make, likelihood, settings = CASES[name]
    outputs = 3 if likelihood is CLASSES else 2
    model, key = bs.models.mlp([INPUTS, *HIDDEN, outputs]), jax.random.key(0)
    plain, ours = (
        make(model, likelihood, **settings),
        bs.sharded(make, model, likelihood, mesh=mesh, **settings),
    )
    one, four = plain.init(key), ours.init(key)
    found = {"first": between(one, bs.gathered(ours, four))}
    x, y = stream(likelihood, outputs)
    x = x.astype(one.belief[0][0].dtype)
    alone = step_of(plain)
    together = step_of(ours).lower(four, x[0], y[0], key).compile()
    told, said = [], []
    for index in range(STEPS):
        own = jax.random.fold_in(key, index)
        one, forecast = alone(one, x[index], y[index], own)
        told.append(forecast)
        four, forecast = together(four, x[index], y[index], own)
        said.append(forecast)
    pairs = zip(zip(*told, strict=True), zip(*said, strict=True), strict=True)
    found["forecasts"] = max(distance(*pair) for pair in pairs)
    found["belief"] = between(one, bs.gathered(ours, four))
    found["sent"] = sent(together)
    found["bound"] = max((RANK + outputs) ** 2, outputs * (max(HIDDEN) + 2))
    found["weights"] = ours.model.size
    return found, plain, ours, four


def quick(mesh):
    """The belief, draws from it, and what travels; one network, few programs."""
    found, _, ours, state = case("lofi, classes", mesh)
    state, key = ours.predict(state), jax.random.key(1)
    draws = np.asarray(ours.sample(state, key, 3))
    found["draws"] = distance(draws_by_hand(ours, state, key, 3), draws[:, places(ours)])
    everywhere = jax.sharding.NamedSharding(state.belief.base.mean.sharding.mesh, jax.P())
    gather = jax.jit(ours.mean, out_shardings=everywhere).lower(state).compile()
    first = ours.init.lower(key).compile()
    return {**found, "gathered": sent(gather), "drawn": sent(first)}


def forecasts(mesh):
    """Every forecast, covariances, draws through the network, and back to four from one."""
    _, plain, ours, state = case("lofi, classes", mesh)
    back, where = bs.gathered(ours, state), places(ours)
    x, key = stream(CLASSES, 3)[0][:9], jax.random.key(2)
    found = {}
    for name in ("plugin", "probit", "laplace_bridge"):
        make = getattr(bs.predictive, name)
        asked = make(plain, back, x), make(ours, state, x)
        found[name] = distance(*(forecast.probabilities for forecast in asked))
    draws = ours.sample(state, key, 5)
    outputs = [[plain.model.apply(draw[where], each) for draw in draws] for each in x]
    of_draws = bs.predictive.monte_carlo(ours, state, x, key, samples=5)
    found["monte_carlo"] = distance(outputs, of_draws.draws)
    rows = np.random.default_rng(1).normal(size=(3, len(where)))
    wide = np.zeros((3, ours.model.size))
    wide[:, where] = rows
    found["covariance_between"] = distance(
        plain.covariance_between(back, rows), ours.covariance_between(state, wide)
    )
    found["back"] = between(back, bs.gathered(ours, bs.scattered(ours, back)))
    again = bs.scattered(ours, back)
    x, y = stream(CLASSES, 3)
    (one, kept), (four, records) = (
        bs.run(learner, start, (x, y), progress=False)
        for learner, start in ((plain, back), (ours, again))
    )
    found["run"] = between(one, bs.gathered(ours, four))
    found["records"] = between(kept.values, records.values)
    batch = plain.update_batch(one, x[:7], y[:7]), ours.update_batch(four, x[:7], y[:7])
    found["batch"] = between(batch[0], bs.gathered(ours, batch[1]))
    return found


def main(dtype, *names):
    jax.config.update("jax_enable_x64", dtype == "float64")
    # Devices that are threads of one pool may wait for each other's programs without end.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    mesh = jax.make_mesh((4,), ("devices",))
    whole = {"quick": quick, "forecasts": forecasts}
    found = {n: whole[n](mesh) if n in whole else case(n, mesh)[0] for n in names}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
