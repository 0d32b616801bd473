"""Wrapped networks: dense layers are found, and rows are the derivative whatever the network is."""

from itertools import pairwise

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import bayestream as bs
from bayestream.networks.linearize import output_rows
from bayestream.networks.rows import to_dense

KEY = jax.random.key(0, impl="rbg")
RNG = np.random.default_rng(0)
close = np.testing.assert_allclose


def _linen(sizes, *, param_dtype=float, between=lambda x: x, **options):
    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            for size in sizes[1:-1]:
                x = nn.tanh(between(nn.Dense(size, param_dtype=param_dtype, **options)(x)))
            return nn.Dense(sizes[-1], param_dtype=param_dtype, **options)(x)

    module = Network()
    return module.apply, module.init(KEY, jnp.zeros(sizes[0]))


def _nnx(sizes):
    rngs = nnx.Rngs(0)
    layers = [nnx.Linear(i, o, rngs=rngs, param_dtype=float) for i, o in pairwise(sizes)]
    graph, params = nnx.split(nnx.Sequential(*layers[:-1], nnx.tanh, layers[-1]))
    return lambda params, x: nnx.merge(graph, params)(x), params


def _parted(module):
    params, static = eqx.partition(module, eqx.is_array)
    return lambda params, x: eqx.combine(params, static)(x), params


class _Convolved(eqx.Module):
    convolution: eqx.nn.Conv1d
    linear: eqx.nn.Linear

    def __call__(self, x):
        return self.linear(jax.nn.relu(self.convolution(x[None])).reshape(-1))


def _equinox_mlp(sizes):
    return _parted(eqx.nn.MLP(sizes[0], sizes[-1], sizes[1], len(sizes) - 2, jnp.tanh, key=KEY))


def _convolved():
    return _parted(_Convolved(eqx.nn.Conv1d(1, 2, 2, key=KEY), eqx.nn.Linear(4, 2, key=KEY)))


def _arrays(*shapes):
    return [RNG.normal(size=shape) for shape in shapes]


def _norm(x):
    return nn.LayerNorm(param_dtype=float)(x)


def _residual(p, x):
    return x + jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3]


def _one_weight_twice(p, x):
    return jnp.tanh(jnp.tanh(x @ p[0] + p[1]) @ p[0] + p[1]) @ p[2]


def _shared_and_penalised(p, x):
    return jnp.tanh(x @ p[0]) @ p[1] - jnp.sum(p[0] ** 2)


def _over_a_sequence(p, x):
    return jnp.mean(jnp.tanh(jnp.outer(x, jnp.arange(2.0)) @ p[0] + p[1]), axis=0) @ p[2] + p[3]


def _with_idle_weights(p, x):
    return jnp.tanh(x @ p[0] + p[1]) + 0 * (x @ p[2])[:2]


def _with_axes_of_one(p, x):
    """A batch of one under vmap and jit, a kernel that is turned, and one with three axes."""
    hidden = jax.jit(jax.vmap(lambda row: p[0] @ row + p[1]))(x[None])
    heads = jnp.einsum("bi,iho->bho", jnp.tanh(hidden), p[2]) + p[3]
    return jnp.tanh(heads).reshape(1, -1)[0] @ p[4].T


def _with_turned_outputs(p, x):
    heads = jnp.einsum("i,iho->ho", x, p[0]).T + p[1]
    return jnp.tanh(heads).reshape(-1) @ p[2] + p[3]


def _with_kernels_made_of_others(p, x):
    return x @ jnp.broadcast_to(p[0], (3, 2)) + x @ p[1].reshape(2, 3).T


def _past_its_bias(p, x):
    before = x @ p[0]
    return jnp.tanh(before + p[1]) + before


def _one_program_twice(p, x):
    layer = jax.jit(lambda W, b, x: jnp.tanh(W @ x + b))
    return layer(p[2], p[3], layer(p[0], p[1], x))


def _rounded(p, x):
    """Whole numbers have no derivative."""
    scale = p[0].astype(int).astype(float) @ x
    return scale * ((p[1] @ x).astype(int).astype(float) + p[2])


def _through_other_programs(p, x):
    """What is recognised stands beside a scan, a choice and values that are not used."""
    hidden = jnp.tanh(x @ p[0] + p[1])
    largest, _ = jax.lax.top_k(hidden, 2)
    summed, _ = jax.lax.scan(lambda total, h: (total * h + p[2][0], None), 0.5, hidden)
    chosen = jax.lax.cond(summed > 0, lambda h: h @ p[3], lambda h: -h @ p[3], largest)
    return chosen + summed


# The function, its parameters, and of each dense layer that is to be found its inputs, its outputs
# and whether it has a bias.
NETWORKS = {
    "linen": (*_linen([3, 4, 2]), [(3, 4, True), (4, 2, True)]),
    "nnx": (*_nnx([3, 4, 5, 2]), [(3, 4, True), (4, 5, True), (5, 2, True)]),
    "equinox": (*_equinox_mlp([3, 4, 4, 2]), [(3, 4, True), (4, 4, True), (4, 2, True)]),
    "no biases": (*_linen([3, 4, 2], use_bias=False), [(3, 4, False), (4, 2, False)]),
    "layer norm": (*_linen([3, 4, 2], between=_norm), [(3, 4, True), (4, 2, True)]),
    "jitted": (jax.jit(_linen([3, 4, 2])[0]), _linen([3, 4, 2])[1], [(3, 4, True), (4, 2, True)]),
    "residual": (_residual, _arrays((3, 4), 4, (4, 3), 3), [(3, 4, True), (4, 3, False)]),
    "one weight twice": (_one_weight_twice, _arrays((3, 3), 3, (3, 2)), [(3, 2, False)]),
    "penalised": (_shared_and_penalised, _arrays((3, 4), (4, 2)), [(4, 2, False)]),
    "sequence": (_over_a_sequence, _arrays((2, 4), 4, (4, 2), 2), [(4, 2, True)]),
    "idle weights": (
        _with_idle_weights,
        _arrays((3, 2), 2, (3, 4), 5),
        [(3, 2, True), (3, 4, False)],
    ),
    "axes of one": (
        _with_axes_of_one,
        _arrays((4, 3), 4, (4, 2, 3), (2, 3), (2, 6)),
        [(3, 4, True), (4, 6, True), (6, 2, False)],
    ),
    "turned outputs": (
        _with_turned_outputs,
        _arrays((3, 2, 3), (3, 2), (6, 2), 1),
        [(3, 6, False), (6, 2, False)],
    ),
    "a vector": (lambda p, x: p[0] @ x + p[1], _arrays(3, ()), []),
    "kernels": (_with_kernels_made_of_others, _arrays((1, 2), 6), [(3, 2, False)]),
    "past its bias": (_past_its_bias, _arrays((3, 2), 2), [(3, 2, False)]),
    "one program twice": (
        _one_program_twice,
        _arrays((3, 3), 3, (3, 3), 3),
        [(3, 3, True), (3, 3, True)],
    ),
    "convolution": (*_convolved(), [(4, 2, True)]),
    "other programs": (
        _through_other_programs,
        _arrays((3, 4), 4, 1, (2, 2)),
        [(3, 4, True)],
    ),
    "rounded": (_rounded, _arrays((2, 3), (2, 3), 2), [(3, 2, False)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_of_a_wrapped_network_are_its_derivative(name):
    apply, params, layers = NETWORKS[name]
    params = jax.tree.map(lambda leaf: RNG.normal(size=leaf.shape), params)
    model, xs = bs.models.wrap(apply, params, inputs=(3,)), RNG.normal(size=(2, 3))
    assert [(layer.inputs, layer.outputs, layer.bias) for layer in model.layers] == layers
    flat = model.init(KEY)
    jax.tree.map(np.testing.assert_array_equal, model.unravel(flat), params)

    @jax.jit
    def found_and_expected(flat, xs):
        eta, found = output_rows(model, flat, xs)
        by_leaf = jax.vmap(jax.jacrev(apply), (None, 0))(model.unravel(flat), xs)
        outputs = jax.vmap(apply, (None, 0))(model.unravel(flat), xs)
        return (eta, to_dense(found)), (outputs, by_leaf)

    (eta, rows), (outputs, by_leaf) = found_and_expected(flat, xs)
    close(eta, outputs.reshape(eta.shape), rtol=0, atol=1e-12)
    by_row = jax.tree.map(lambda leaf, own: leaf.reshape(-1, *own.shape), by_leaf, params)
    for index, row in enumerate(rows):
        expected = jax.tree.map(lambda leaf, index=index: leaf[index], by_row)
        jax.tree.map(lambda a, b: close(a, b, rtol=0, atol=1e-12), model.unravel(row), expected)


@pytest.mark.parametrize(("computed", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_rows_have_the_type_of_the_parameters_whatever_is_computed_in(computed, tolerance):
    options = {"use_bias": computed == "float32", "dtype": computed}
    apply, params = _linen([3, 4, 2], param_dtype=jnp.float32, **options)
    model, x = bs.models.wrap(apply, params, inputs=(3,)), RNG.normal(size=(1, 3))
    flat = model.init(KEY)
    assert flat.dtype == jnp.float32
    found = jax.jit(lambda x: output_rows(model, flat, x)[1])(x.astype(np.float32))
    assert all(part.dtype == jnp.float32 for part in jax.tree.leaves(found))
    del options["dtype"]
    exact = bs.models.wrap(_linen([3, 4, 2], **options)[0], params, inputs=(3,))
    expected = jax.jit(jax.jacrev(exact.apply))(flat, x[0])
    close(to_dense(found), expected, rtol=0, atol=tolerance)


def _twin(library, model):
    """The network of `mlp` with the same weights, written with another library."""
    pairs = model.unravel(jax.jit(model.init)(KEY))
    if library == "linen":
        names = (f"Dense_{index}" for index in range(len(pairs)))
        kernels = ({"kernel": kernel, "bias": bias} for kernel, bias in pairs)
        return _linen([3, 4, 2])[0], {"params": dict(zip(names, kernels, strict=True))}
    apply, params = _equinox_mlp([3, 4, 2])
    arrays = [array for kernel, bias in pairs for array in (kernel.T, bias)]
    return apply, jax.tree.unflatten(jax.tree.structure(params), arrays)


def _kronecker(model, likelihood):
    return bs.laplace(model, likelihood, curvature=bs.estimators.kronecker_curvature)


def _lofi(model, likelihood):
    return bs.lofi(model, likelihood, rank=3, decay=0.99, drift=0.01)


@pytest.mark.parametrize(
    ("library", "factory"),
    [
        ("linen", _lofi),
        ("equinox", _lofi),
        pytest.param("equinox", bs.hilofi, marks=pytest.mark.slow),
        pytest.param("equinox", _kronecker, marks=pytest.mark.slow),
    ],
)
def test_a_wrapped_perceptron_learns_as_mlp_does(library, factory):
    model = bs.models.mlp([3, 4, 2], activation=jnp.tanh)
    apply, params = _twin(library, model)
    wrapped = bs.models.wrap(apply, params, inputs=(3,))
    np.testing.assert_array_equal(wrapped.init(KEY), jax.jit(model.init)(KEY))
    assert wrapped.layers == model.layers
    xs, ys = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 2))
    states = []
    for network in (model, wrapped):
        learner = factory(network, bs.likelihoods.gaussian(0.1))
        states.append(bs.run(learner, learner.init(KEY), (xs, ys), progress=False)[0])
    jax.tree.map(lambda a, b: close(a, b, rtol=0, atol=1e-10), *states)


def test_kronecker_curvature_of_a_layer_without_bias_is_its_fisher_information():
    model = bs.models.wrap(lambda W, x: x @ W, RNG.normal(size=(3, 2)), inputs=(3,))
    learner = _kronecker(model, bs.likelihoods.gaussian(0.5))
    x, y = RNG.normal(size=3), RNG.normal(size=2)
    state = jax.jit(learner.update)(learner.init(KEY), x, y)
    precision = 10.0 * np.eye(6) + np.kron(np.outer(x, x), np.eye(2)) / 0.5
    close(learner.covariance_between(state, jnp.eye(6)), np.linalg.inv(precision), atol=1e-12)


def test_a_wrapped_network_grows_as_mlp_does():
    small, large = (
        bs.lofi(
            bs.models.wrap(*_linen([inputs, 4, 1]), inputs=(inputs,)),
            bs.likelihoods.gaussian(0.1),
            rank=2,
        )
        for inputs in (2, 3)
    )
    state = small.init(KEY)
    grown = bs.grow(small, state, large, KEY)
    before = small.model.apply(small.mean(state), jnp.array([1.0, 2.0]))
    close(large.model.apply(large.mean(grown), jnp.array([1.0, 2.0, 0.0])), before, rtol=1e-14)


def test_a_network_without_biases_does_not_grow():
    model = bs.models.wrap(*_linen([2, 3, 1], use_bias=False), inputs=(2,))
    learner = bs.lofi(model, bs.likelihoods.gaussian(0.1), rank=2)
    with pytest.raises(ValueError, match=r"^a network must be made of dense layers with biases"):
        bs.grow(learner, learner.init(KEY), learner, KEY)


def test_a_checkpoint_of_a_wrapped_network_is_for_that_network_alone(tmp_path):
    apply, params = _equinox_mlp([3, 4, 2])
    model = bs.models.wrap(apply, params, inputs=(3,))
    learner = _lofi(model, bs.likelihoods.gaussian(0.1))
    stream = (RNG.normal(size=(5, 3)), RNG.normal(size=(5, 2)))
    state, _ = bs.run(learner, learner.init(KEY), stream, progress=False)
    path = tmp_path / "state.safetensors"
    bs.checkpoint.save(path, learner, state)
    jax.tree.map(np.testing.assert_array_equal, bs.checkpoint.load(path, learner).state, state)
    tied = bs.models.wrap(
        lambda params, x: apply(params, x) + 0 * sum(map(jnp.sum, jax.tree.leaves(params))),
        params,
        inputs=(3,),
    )
    with pytest.raises(bs.checkpoint.CheckpointError, match="its network is"):
        bs.checkpoint.load(path, _lofi(tied, bs.likelihoods.gaussian(0.1)))


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda p, x: x @ p if p[0, 0] > 0 else x, r"trace.*TracerBoolConversionError"),
        (lambda p, x: np.asarray(x) @ p, r"trace.*TracerArrayConversionError"),
        (lambda p, x: x[:2] @ p, r"trace.*\(3,\).*TypeError"),
        (lambda p, x: (x @ p, p), "vector.*got a tuple"),
        (lambda p, x: jnp.outer(p, x), r"vector.*got shape \(6, 3\)"),
    ],
)
def test_wrap_refuses_what_is_no_network_in_a_sentence(apply, message):
    with pytest.raises(ValueError, match=rf"^apply\(params, x\) must.*{message}"):
        bs.models.wrap(apply, jnp.ones((3, 2)), inputs=(3,))


def test_wrap_refuses_to_learn_nothing():
    with pytest.raises(ValueError, match="params must hold"):
        bs.models.wrap(lambda p, x: x, {}, inputs=(3,))


TOKENS, LENGTH, WIDTH = 3, 5, 8


class _Transformer(eqx.Module):
    """One block, read out where the last token is."""

    embedding: jax.Array
    places: jax.Array
    attention: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.LayerNorm]
    hidden: eqx.nn.MLP
    readout: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 5)
        self.embedding = jax.random.normal(keys[0], (TOKENS, WIDTH))
        self.places = jax.random.normal(keys[1], (LENGTH, WIDTH))
        self.attention = eqx.nn.MultiheadAttention(1, WIDTH, key=keys[2])
        self.norms = [eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)]
        self.hidden = eqx.nn.MLP(WIDTH, WIDTH, 16, 1, key=keys[3])
        self.readout = eqx.nn.Linear(WIDTH, TOKENS, key=keys[4])

    def __call__(self, tokens):
        x = self.embedding[tokens.astype(int)] + self.places
        inside = jax.vmap(self.norms[0])(x)
        x = x + self.attention(inside, inside, inside)
        x = x + jax.vmap(self.hidden)(jax.vmap(self.norms[1])(x))
        return self.readout(x[-1])


@pytest.mark.slow
def test_a_transformer_learns_which_token_came_first():
    apply, params = _parted(_Transformer(KEY))
    model = bs.models.wrap(apply, params, inputs=(LENGTH,))
    assert [(layer.inputs, layer.outputs) for layer in model.layers] == [(WIDTH, TOKENS)]
    learner = bs.lofi(model, bs.likelihoods.categorical(), rank=20, prior_precision=1.0)
    xs = RNG.integers(0, TOKENS, (1000, LENGTH)).astype(float)
    _, records = bs.run(learner, learner.init(KEY), (xs, xs[:, 0]), progress=False)
    wrong = np.argmax(records["prediction"], axis=1) != xs[:, 0]
    assert np.mean(wrong[-200:]) < 0.1  # by chance, 2/3
