"""Every predictive distribution against its dense definition, written in NumPy."""

import math
import subprocess
import sys
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
import oracles
import problems

RANK = {"rank": 3}
METHODS = {"lofi": RANK, "lofi_spherical": RANK, "fdekf": {}, "fcekf": {}, "vdekf": {}}
SAMPLED = ["monte_carlo", "linearized_monte_carlo"]
NAMES = {
    "regression": ["plugin", "linearized", *SAMPLED],
    "classification": ["plugin", "probit", "laplace_bridge", *SAMPLED],
}
CASES = [(task, name) for task, names in NAMES.items() for name in names]
HIDDEN = 3
XS = np.random.default_rng(5).normal(size=(4, 2))
YS = {"regression": np.random.default_rng(6).normal(size=(4, 2)), "classification": [2, 0, 1, 1]}
ERRORS = 5.0  # standard errors: a correct estimate is further off once in two million
UNCERTAIN = [case for case in CASES if case[1] != "plugin"]
each_case = pytest.mark.parametrize(("task", "name"), CASES)
slow = pytest.mark.slow
each_method = pytest.mark.parametrize(
    "method", [m if m == "lofi" else pytest.param(m, marks=slow) for m in METHODS]
)
each_temperature = pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=slow), 0.3])


@cache
def trained(task: str, method: str = "lofi", likelihood=None):
    problem = problems.PROBLEMS[task]()
    likelihood = likelihood or problem.likelihood
    learner = bs.make(method, problem.model, likelihood, prior_precision=4.0, **METHODS[method])
    start = learner.init(jax.random.key(0))
    state, _ = bs.run(learner, start, (problem.xs[:6], problem.ys[:6]))
    covariance = jax.jit(learner.covariance_between)(state, np.eye(problem.model.size))
    return learner, state, oracles.Dense(np.array(learner.mean(state)), np.array(covariance))


def forecast(name, learner, state, x, samples=100, **options):
    drawn = {"key": jax.random.key(3), "samples": samples} if name in SAMPLED else {}
    return getattr(bs.predictive, name)(learner, state, x, **drawn, **options)


class Found(NamedTuple):
    """What a forecast says, computed as one program."""

    mean: np.ndarray
    covariance: np.ndarray
    log_density: np.ndarray  # of YS
    probabilities: np.ndarray | None  # of classes
    concentration: np.ndarray | None  # of the Laplace bridge


@partial(jax.jit, static_argnums=(0, 1), static_argnames=("samples", "temperature"))
def compiled(name, learner, state, x, y, **options) -> Found:
    found = forecast(name, learner, state, x, **options)
    return Found(
        found.mean,
        found.covariance,
        found.log_density(y),
        found.probabilities if learner.likelihood(state).name == "categorical" else None,
        getattr(found, "concentration", None),
    )


def ask(name, learner, state, **options) -> Found:
    classes = learner.likelihood(state).name == "categorical"
    y = np.asarray(YS["classification" if classes else "regression"])
    return compiled(name, learner, state, XS, y, **options)


def network(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Outputs (…, B, C) of a tanh network for weights (…, P) and inputs (B, D)."""
    first, second = np.split(theta, [(x.shape[-1] + 1) * HIDDEN], axis=-1)
    first = first.reshape(*theta.shape[:-1], -1, HIDDEN)
    second = second.reshape(*theta.shape[:-1], HIDDEN + 1, -1)
    hidden = np.tanh(x @ first[..., :-1, :] + first[..., -1:, :])
    return hidden @ second[..., :-1, :] + second[..., -1:, :]


def jacobian(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(B, C, P), by a complex step, which is exact to rounding."""
    return np.moveaxis(network(theta + 1e-30j * np.eye(theta.size), x).imag / 1e-30, 0, -1)


def output_belief(belief: oracles.Dense, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = jacobian(belief.mean, x)
    return network(belief.mean, x), rows @ belief.covariance @ np.swapaxes(rows, -1, -2)


def softmax(z: np.ndarray) -> np.ndarray:
    odds = np.exp(z - z.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def gaussian_density(y: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """N(y | mean, covariance) over any leading axes."""
    gap = (y - mean)[..., None]
    square = np.swapaxes(gap, -1, -2) @ np.linalg.solve(covariance, gap)
    return np.exp(-0.5 * square[..., 0, 0]) / np.sqrt(np.linalg.det(2 * np.pi * covariance))


def assert_gaussian(actual, mean, covariance):
    np.testing.assert_allclose(actual.mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(actual.covariance, covariance, rtol=1e-9, atol=1e-11)
    density = np.log(gaussian_density(YS["regression"], mean, covariance))
    np.testing.assert_allclose(actual.log_density, density, rtol=1e-9, atol=1e-9)


def assert_categorical(actual, p):
    np.testing.assert_allclose(actual.probabilities, p, rtol=1e-9)
    np.testing.assert_allclose(actual.mean, p, rtol=1e-9)
    covariance = [np.diag(row) - np.outer(row, row) for row in p]
    np.testing.assert_allclose(actual.covariance, covariance, rtol=1e-8, atol=1e-11)
    labels = np.array(YS["classification"])
    expected = np.log(p[np.arange(4), labels])
    np.testing.assert_allclose(actual.log_density, expected, rtol=1e-9, atol=1e-9)


@each_method
def test_plugin_is_the_likelihood_at_the_mean(method):
    learner, state, belief = trained("regression", method)
    noise = np.broadcast_to(problems.NOISE, (4, 2, 2))
    assert_gaussian(ask("plugin", learner, state), network(belief.mean, XS), noise)
    learner, state, belief = trained("classification", method)
    p = softmax(network(belief.mean, XS))
    assert_categorical(ask("plugin", learner, state), p)


@each_method
@each_temperature
def test_linearized_has_covariance_h_sigma_h_plus_noise(method, temperature):
    learner, state, belief = trained("regression", method)
    mean, covariance = output_belief(belief, XS)
    actual = ask("linearized", learner, state, temperature=temperature)
    assert_gaussian(actual, mean, temperature * covariance + problems.NOISE)


def test_linearized_takes_the_noise_that_is_believed_now():
    adaptive = bs.likelihoods.adaptive_gaussian(full=True)
    learner, state, belief = trained("regression", likelihood=adaptive)
    mean, covariance = output_belief(belief, XS)
    noise = np.asarray(learner.likelihood(state).covariance(jnp.zeros(2)))
    assert not np.allclose(noise, problems.NOISE)
    assert_gaussian(ask("linearized", learner, state), mean, covariance + noise)


@each_method
@each_temperature
def test_probit_divides_each_logit_by_its_own_uncertainty(method, temperature):
    learner, state, belief = trained("classification", method)
    z, covariance = output_belief(belief, XS)
    variance = temperature * np.diagonal(covariance, axis1=-2, axis2=-1)
    actual = ask("probit", learner, state, temperature=temperature)
    assert_categorical(actual, softmax(z / np.sqrt(1 + np.pi / 8 * variance)))


@each_method
@each_temperature
def test_laplace_bridge_is_the_dirichlet_of_the_centred_logits(method, temperature):
    learner, state, belief = trained("classification", method)
    actual = ask("laplace_bridge", learner, state, temperature=temperature)
    alphas = []
    for z, V in zip(*output_belief(belief, XS), strict=True):
        V, ones = temperature * V, np.ones(3)
        total = ones @ V @ ones
        z = z - V @ ones * (ones @ z) / total
        V = V - np.outer(V @ ones, ones @ V) / total
        alphas.append((1 - 2 / 3 + np.exp(z) * np.exp(-z).sum() / 9) / np.diag(V))
    alphas = np.array(alphas)
    np.testing.assert_allclose(actual.concentration, alphas, rtol=1e-9)
    assert_categorical(actual, alphas / alphas.sum(axis=1, keepdims=True))


def mixture(task: str, temperature: float = 1.0):
    """A forecast of four given weight vectors, and their network outputs (4, B, C)."""
    learner, state, belief = trained(task)
    weights = np.random.default_rng(7).normal(belief.mean, 0.7, (4, belief.mean.size))
    learner = learner._replace(sample=lambda state, key, count: jnp.asarray(weights)[:count])
    actual = ask("monte_carlo", learner, state, samples=4, temperature=temperature)
    tempered = belief.mean + math.sqrt(temperature) * (weights - belief.mean)
    return actual, network(tempered, XS)


@each_temperature
def test_monte_carlo_is_the_equal_mixture_of_its_weights(temperature):
    actual, outputs = mixture("classification", temperature)
    assert_categorical(actual, softmax(outputs).mean(axis=0))
    actual, outputs = mixture("regression", temperature)
    mean, gap = outputs.mean(axis=0), outputs - outputs.mean(axis=0)
    spread = np.einsum("sbi,sbj->bij", gap, gap) / 4
    density = gaussian_density(YS["regression"], outputs, problems.NOISE).mean(axis=0)
    np.testing.assert_allclose(actual.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(actual.covariance, spread + problems.NOISE, rtol=1e-9)
    np.testing.assert_allclose(actual.log_density, np.log(density), rtol=1e-9)


def assert_same_average(actual, terms, count=math.inf):
    """`actual` averages `count` draws (or all) of what `terms` holds independent draws of."""
    error = terms.std(axis=0) * math.sqrt(1 / count + 1 / len(terms))
    assert np.all(np.abs(actual - terms.mean(axis=0)) <= ERRORS * error)


@pytest.mark.slow
@each_method
@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("task", NAMES)
def test_monte_carlo_converges_to_draws_from_the_dense_gaussian(task, name, method):
    learner, state, belief = trained(task, method)
    count, long = 20_000, 100_000
    white = np.random.default_rng(8).normal(size=(long, belief.mean.size))
    step = white @ np.linalg.cholesky(belief.covariance).T
    outputs = network(belief.mean + step, XS)
    if name == "linearized_monte_carlo":
        change = np.einsum("bcp,sp->sbc", jacobian(belief.mean, XS), step)
        outputs = network(belief.mean, XS) + change
    actual = forecast(name, learner, state, XS, samples=count)
    if task == "classification":
        assert_same_average(actual.probabilities, softmax(outputs), count)
        return
    gap = outputs - outputs.mean(axis=0)
    assert_same_average(actual.mean, outputs, count)
    products = gap[..., :, None] * gap[..., None, :]
    assert_same_average(np.asarray(actual.covariance) - problems.NOISE, products, count)
    density = gaussian_density(YS[task], outputs, problems.NOISE)
    assert_same_average(np.exp(actual.log_density(YS[task])), density, count)


def test_probit_of_two_classes_is_within_twice_the_gap_of_logistic_and_probit_links():
    # |σ(a) − Φ(√(π/8) a)| < 0.0177 everywhere; the formula swaps one for the other twice.
    learner = bs.fcekf(problems.mlp([1, 2]), bs.likelihoods.categorical())
    state, a = learner.init(jax.random.key(0)), np.linspace(-6, 6, 25)
    u = np.linspace(-9, 9, 4001)
    weight = np.exp(-(u**2) / 2) / np.exp(-(u**2) / 2).sum()
    first = np.eye(4)[0]
    probit = jax.jit(lambda state: bs.predictive.probit(learner, state, a[:, None]).probabilities)
    for variance in (0.1, 1.0, 10.0):
        belief = state.belief._replace(mean=first, covariance=variance * np.diag(first))
        exact = (1 / (1 + np.exp(-a[:, None] * (1 + math.sqrt(variance) * u)))) @ weight
        actual = np.asarray(probit(state._replace(belief=belief)))
        assert np.max(np.abs(actual[:, 0] - exact)) < 2 * 0.0177


def test_probit_of_yes_or_no_is_the_average_over_the_logit_and_the_default():
    learner = bs.fcekf(problems.mlp([1, 1]), bs.likelihoods.bernoulli())
    state, a = learner.init(jax.random.key(0)), np.linspace(-6, 6, 25)
    u = np.linspace(-9, 9, 4001)
    weight = np.exp(-(u**2) / 2) / np.exp(-(u**2) / 2).sum()
    first = np.eye(2)[0]
    for variance in (0.1, 1.0, 10.0):
        belief = state.belief._replace(mean=first, covariance=variance * np.diag(first))
        doubting = state._replace(belief=belief)
        found = bs.predictive.default(learner, doubting, a[:, None])
        shrunk = 1 / (1 + np.exp(-a / np.sqrt(1 + np.pi / 8 * variance * a**2)))
        np.testing.assert_allclose(found.probabilities[:, 0], shrunk, rtol=1e-9)
        np.testing.assert_allclose(found.log_density(np.ones((25, 1))), np.log(shrunk), rtol=1e-9)
        exact = (1 / (1 + np.exp(-a[:, None] * (1 + math.sqrt(variance) * u)))) @ weight
        assert np.max(np.abs(shrunk - exact)) < 2 * 0.0177


def test_probit_shrinks_towards_uniform_as_the_weights_become_uncertain():
    # Before any data each logit has the same variance, so the order of the classes stays.
    learner = bs.lofi(problems.mlp([2, 3]), bs.likelihoods.categorical(), rank=2)
    state = learner.init(jax.random.key(0))

    @jax.jit
    def at_each(state):
        found = [
            bs.predictive.probit(learner, state, XS, temperature=t)
            for t in (0.0, 0.1, 1.0, 10.0, 1e16)
        ]
        return [each.probabilities for each in found]

    tops = [np.max(p, axis=1) for p in at_each(state)]
    assert np.all(np.diff(tops, axis=0) < 0)
    np.testing.assert_allclose(tops[-1], 1 / 3, rtol=1e-6)


@pytest.mark.slow
@each_case
def test_a_batch_is_its_inputs_one_at_a_time(task, name):
    learner, state, _ = trained(task)
    together = forecast(name, learner, state, XS)
    density = together.log_density(jnp.asarray(YS[task]))
    for i, x in enumerate(XS):
        alone = forecast(name, learner, state, x)
        np.testing.assert_allclose(alone.mean, together.mean[i], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(alone.covariance, together.covariance[i], rtol=1e-9, atol=1e-12)
        single = alone.log_density(jnp.asarray(YS[task][i]))
        assert single.shape == ()
        np.testing.assert_allclose(single, density[i], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "method",
    [
        "lofi_spherical",
        "hilofi",
        *(pytest.param(m, marks=slow) for m in ("lofi", "fcekf", "vdekf")),
    ],
)
def test_variances_of_many_inputs_at_once_are_those_of_a_few(method):
    """In single precision, where XLA has got fused sums over many rows wrong."""
    with jax.enable_x64(False):
        xs = np.random.default_rng(7).normal(size=(200, 8)).astype(np.float32)
        learner = bs.make(method, bs.models.mlp([8, 50, 1]), bs.likelihoods.gaussian(0.1))
        state, _ = bs.run(learner, learner.init(jax.random.key(0)), (xs[:20], xs[:20, :1]))
        together = bs.predictive.linearized(learner, state, xs).covariance
        few = [bs.predictive.linearized(learner, state, part) for part in xs.reshape(25, 8, 8)]
    np.testing.assert_allclose(together, np.concatenate([f.covariance for f in few]), rtol=1e-4)


@pytest.mark.slow
# The Laplace bridge has no such limit: with three classes it is no softmax at any variance.
@pytest.mark.parametrize(("task", "name"), [c for c in UNCERTAIN if c[1] != "laplace_bridge"])
def test_temperature_zero_is_the_plugin(task, name):
    learner, state, _ = trained(task)
    plugin = bs.predictive.plugin(learner, state, XS)
    cold = forecast(name, learner, state, XS, temperature=0.0)
    np.testing.assert_allclose(cold.mean, plugin.mean, rtol=1e-10)
    np.testing.assert_allclose(cold.covariance, plugin.covariance, rtol=1e-9, atol=1e-12)
    y = jnp.asarray(YS[task])
    np.testing.assert_allclose(cold.log_density(y), plugin.log_density(y), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES["classification"])
def test_probabilities_are_positive_and_sum_to_one(name):
    learner, state, _ = trained("classification")

    @jax.jit
    def found(state):
        actual = forecast(name, learner, state, XS)
        return actual.probabilities, [actual.log_density(np.full(4, c)) for c in range(3)]

    p, logs = map(np.asarray, found(state))
    assert p.shape == (4, 3)
    assert np.all(p > 0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(logs).sum(axis=0), 1.0, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES["regression"])
def test_log_densities_integrate_to_one(name):
    model = bs.models.mlp([1, HIDDEN, 1], activation=jnp.tanh)
    learner = bs.lofi(model, bs.likelihoods.gaussian(0.3), rank=2)
    state = learner.update(learner.init(jax.random.key(0)), np.ones(1), np.ones(1))
    alone = forecast(name, learner, state, np.array([0.7]))
    y = np.linspace(-30, 30, 6001)  # fine enough: the trapezoid rule is exact to e^(−2π²·0.3/h²)
    density = np.exp(jax.vmap(alone.log_density)(jnp.asarray(y)[:, None]))
    np.testing.assert_allclose(density.sum() * (y[1] - y[0]), 1.0, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES["classification"])
def test_samples_of_classes_have_the_forecasts_probabilities(name):
    learner, state, _ = trained("classification")

    @jax.jit
    def found(state):
        actual = forecast(name, learner, state, XS)
        return actual.probabilities, actual.sample(jax.random.key(4), 20_000)

    probabilities, draws = map(np.asarray, found(state))
    assert draws.shape == (20_000, 4)
    assert_same_average(probabilities, draws[..., None] == np.arange(3))


def assert_refused(name, learner, x=XS):
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:
        forecast(name, learner, learner.init(jax.random.key(0)), x)
    assert ". " not in str(caught.value), "one sentence is enough"


KINDS = {"gaussian": (1.0,), "categorical": (), "bernoulli": (), "poisson": ()}
CLOSED = {
    "linearized": ["gaussian"],
    "probit": ["categorical", "bernoulli"],
    "laplace_bridge": ["categorical"],
}


@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n, own in CLOSED.items() for k in KINDS if k not in own]
)
def test_a_likelihood_without_the_closed_form_is_refused(name, kind):
    likelihood = getattr(bs.likelihoods, kind)(*KINDS[kind])
    assert_refused(name, bs.lofi(problems.mlp([2, 3]), likelihood, rank=2))


@each_case
@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (2, 2, 2)])
def test_inputs_of_the_wrong_shape_are_refused(task, name, shape):
    assert_refused(name, trained(task)[0], np.ones(shape))


@pytest.mark.parametrize(("task", "name"), UNCERTAIN)
def test_a_point_estimate_has_a_plugin_forecast_only(task, name):
    problem = problems.PROBLEMS[task]()
    learner = bs.ogd(problem.model, problem.likelihood)
    state = learner.init(jax.random.key(0))
    expected = network(np.asarray(learner.mean(state)), XS)
    expected = softmax(expected) if task == "classification" else expected
    np.testing.assert_allclose(ask("plugin", learner, state).mean, expected, rtol=1e-9)
    assert_refused(name, learner)


LARGE = """
import re
import jax, numpy as np, bayestream as bs

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

learner = bs.lofi(bs.models.mlp([784, 500, 500, 10]), bs.likelihoods.categorical(), rank=10)
xs = np.random.default_rng(0).normal(size=(10_000, 784)).astype(np.float32)
state = learner.update_batch(learner.init(jax.random.key(0)), xs[:2], np.array([1, 7]))
before = peak()
probabilities = np.asarray(bs.predictive.probit(learner, state, xs).probabilities)
print(peak() - before)
np.testing.assert_allclose(probabilities.sum(axis=1), np.ones(10_000), rtol=1e-5)
"""


@pytest.mark.slow
def test_ten_thousand_images_are_forecast_without_storing_their_jacobians():
    # All the Jacobians at once would be 10,000 × 10 × 648,010 floats of 4 bytes: 260 GB.
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2e9
