"""Rows that are never written out behave like the matrix they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
from bayestream.networks import rows
from bayestream.networks.linearize import jacobian, observe
from bayestream.networks.rows import Rows
from problems import FILTERS_LOFI_FIRST

RNG = np.random.default_rng(0)
close = np.testing.assert_allclose
to_dense = jax.jit(rows.to_dense)


@pytest.fixture(params=[(1, 1), (1, 3), (4, 2)], ids=["one row", "one example", "a batch"])
def G(request: pytest.FixtureRequest) -> Rows:  # noqa: N802
    examples, columns = request.param
    shapes = [(3, 4), (5, 1), (1, 6)]
    return Rows(
        tuple(RNG.normal(size=(examples, i)) for i, _ in shapes),
        tuple(RNG.normal(size=(examples, columns, o)) for _, o in shapes),
    )


def test_dense_rows_are_outer_products_layer_after_layer(G):
    matrix = np.asarray(to_dense(G))
    columns = G.deltas[0].shape[1]
    assert matrix.shape == (rows.count(G), 3 * 4 + 5 * 1 + 1 * 6)
    for m, row in enumerate(matrix):
        n, k = divmod(m, columns)
        pairs = zip(G.activations, G.deltas, strict=True)
        close(row, np.concatenate([np.outer(a[n], d[n, k]).ravel() for a, d in pairs]))


@jax.jit
def every_operation(G, vectors, weights, positive, square, matrix):
    return {
        "times": rows.times(G, vectors),
        "combine": rows.combine(G, weights),
        "gram": rows.gram(G, positive),
        "plain gram": rows.gram(G),
        "gram of each": rows.gram_of_each(G, positive),
        "plain gram of each": rows.gram_of_each(G),
        "diagonal": rows.diagonal(G, square),
        "squares": rows.squares(G),
        "and back": rows.to_dense(rows.from_dense(matrix)),
    }


def test_every_operation_is_the_matrix_one(G):
    matrix = np.asarray(to_dense(G))
    count, size = matrix.shape
    vectors, weights = RNG.normal(size=(2, 3, size)), RNG.normal(size=(2, 3, count))
    positive, square = RNG.uniform(0.5, 2, size), RNG.normal(size=(count, count))
    found = every_operation(G, vectors, weights, positive, square, matrix)
    close(found["times"], vectors @ matrix.T, rtol=1e-12)
    close(found["combine"], weights @ matrix, rtol=1e-12)
    for kind, weighted in (("gram", matrix * positive), ("plain gram", matrix)):
        products = weighted @ matrix.T
        close(found[kind], products, rtol=1e-12)
        blocks = products.reshape(len(G.deltas[0]), -1, len(G.deltas[0]), G.deltas[0].shape[1])
        own = [blocks[n, :, n] for n in range(len(blocks))]
        close(found[f"{kind} of each"], own, rtol=1e-12)
    close(found["diagonal"], np.diag(matrix.T @ square @ matrix), rtol=1e-11)
    close(found["squares"], np.sum(matrix**2, axis=0), rtol=1e-12)
    close(found["and back"], matrix)


def plain_wrap(model: bs.Model) -> bs.Model:
    """The same network without its structure."""
    return bs.models.wrap(model.apply, model.init, inputs=model.inputs)


MODELS = {
    "mlp": bs.models.mlp([3, 5, 4, 2]),
    "scaled": bs.models.mlp([3, 5, 2], activation=jnp.tanh, fan_in_scaled=True),
    "linear": bs.models.mlp([3, 2]),
    "lenet": bs.models.lenet(inputs=(8, 8, 1), outputs=3, channels=(2, 3), hidden=5),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_layers_give_the_jacobian(model):
    @jax.jit
    def both_ways(params, x):
        eta, activations, pull_back = model.linearize(params, x)
        deltas = jax.vmap(pull_back)(jnp.eye(model.outputs))
        layered = Rows(tuple(a[None] for a in activations), tuple(d[None] for d in deltas))
        expected = model.apply(params, x), jax.jacobian(model.apply)(params, x)
        return (eta, rows.to_dense(layered), jacobian(model, params, x)[1]), expected

    params, x = RNG.normal(size=model.size), RNG.normal(size=model.inputs)
    (eta, layered, whole), (outputs, expected) = both_ways(params, x)
    close(eta, outputs, rtol=1e-12)
    close(layered, expected, rtol=1e-9, atol=1e-12)
    close(whole, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", FILTERS_LOFI_FIRST)
def test_structure_changes_no_numbers(method):
    """The same filter on the same network, with layers and with plain Jacobian rows."""
    model = MODELS["mlp"]
    xs, ys = RNG.normal(size=(30, 3)), RNG.normal(size=(30, 2))
    means = []
    for network in (model, plain_wrap(model)):
        learner = bs.make(method, network, bs.likelihoods.gaussian(0.1), decay=0.99, drift=0.01)
        state, _ = bs.run(learner, learner.init(jax.random.key(0)), (xs, ys))
        means.append(learner.mean(state))
    close(*means, rtol=1e-8, atol=1e-10)


def by_hand(pairs, x):
    for kernel, bias in pairs[:-1]:
        x = jnp.tanh(x @ kernel + bias)
    return x @ pairs[-1][0] + pairs[-1][1]


def test_no_array_of_parameters_by_outputs_is_made():
    """Nothing in an update of the paper's MLP is as large as P × C, W of rank 3 included."""
    model = bs.models.mlp([784, 500, 500, 10])
    wrapped = bs.models.wrap(by_hand, lambda key: model.unravel(model.init(key)), inputs=(784,))
    cases = [(model, "vdekf", {}), (model, "fdekf", {}), (model, "lofi", {"rank": 3})]
    for network, method, options in [*cases, (wrapped, "lofi", {"rank": 3})]:
        learner = bs.make(method, network, bs.likelihoods.categorical(), **options)
        state = jax.eval_shape(learner.init, jax.random.key(0))
        x, y = jnp.zeros((1, 784)), jnp.zeros(1)
        jaxpr = jax.make_jaxpr(learner.update_batch)(state, x, y)
        assert largest(jaxpr.jaxpr) < model.size * 10


def largest(jaxpr) -> int:
    """The most elements that any value inside has."""
    sizes = [var.aval.size for eqn in jaxpr.eqns for var in eqn.outvars]
    inner = [
        largest(getattr(value, "jaxpr", value))
        for eqn in jaxpr.eqns
        for value in eqn.params.values()
        if hasattr(getattr(value, "jaxpr", value), "eqns")
    ]
    return max([0, *sizes, *inner])


def test_a_batch_is_linearised_example_by_example():
    model = MODELS["mlp"]
    params, xs, ys = (RNG.normal(size=shape) for shape in (model.size, (3, 3), (3, 2)))
    likelihood = bs.likelihoods.gaussian(np.array([[0.3, 0.1], [0.1, 0.2]]))

    @jax.jit
    def observed(xs, ys):
        seen = observe(model, likelihood, params, xs, ys)
        return rows.to_dense(seen.rows), seen.residual

    matrix, residual = observed(xs, ys)
    for n in range(3):
        alone = observed(xs[n : n + 1], ys[n : n + 1])
        # Of a unit far in GELU's tail the slope is a rounded difference of numbers near one.
        close(matrix[2 * n : 2 * n + 2], alone[0], rtol=1e-12, atol=1e-12)
        close(residual[2 * n : 2 * n + 2], alone[1], rtol=1e-12)
