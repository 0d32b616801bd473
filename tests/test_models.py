"""Networks as functions of one flat vector: layout, initialisation, modules of other libraries."""

from functools import partial
from itertools import pairwise

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bayestream.networks.linearize import output_rows
from bayestream.networks.models import lenet, mlp, wrap
from bayestream.networks.rows import to_dense

# The default generator takes seconds to compile for each new shape; this one does not.
KEY, OTHER = (jax.random.key(seed, impl="rbg") for seed in (0, 1))
SIZES = [[3, 2], [1, 1, 1], [4, 7, 5, 2]]
IMAGE = (28, 28, 1)


def _blocks(params, sizes):
    """Each layer's (inputs + 1, outputs) block, cut from the flat vector by hand."""
    blocks, start = [], 0
    for inputs, outputs in pairwise(sizes):
        stop = start + (inputs + 1) * outputs
        blocks.append(np.asarray(params)[start:stop].reshape(inputs + 1, outputs))
        start = stop
    assert start == len(params)
    return blocks


def _forward(blocks, x, activation):
    """Pass forward by hand: append a one to the input, multiply, activate all but the last."""
    for index, block in enumerate(blocks):
        x = np.append(x, 1.0) @ block
        x = activation(x) if index < len(blocks) - 1 else x
    return x


def _std_close(values, expected):
    """Within five standard errors (that of a normal sample bounds that of a truncated one)."""
    return abs(np.std(values) / expected - 1) < 5 / np.sqrt(2 * np.size(values))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_mlp_has_one_block_of_kernel_and_bias_per_layer(sizes):
    model = mlp(sizes)
    expected = sum((i + 1) * o for i, o in pairwise(sizes))
    params = jax.eval_shape(model.init, KEY)
    assert model.size == expected
    assert params.shape == (expected,)
    assert model.inputs == (sizes[0],)
    assert model.outputs == sizes[-1]
    assert jax.eval_shape(model.apply, params, jnp.ones(sizes[0])).shape == (sizes[-1],)


def test_the_papers_mlp_has_648010_parameters():
    assert mlp([784, 500, 500, 10]).size == 648_010


@pytest.mark.parametrize("fan_in_scaled", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_layers_tile_the_flat_vector(sizes, fan_in_scaled):
    model = mlp(sizes, fan_in_scaled=fan_in_scaled)
    start = 0
    for layer, inputs, outputs in zip(model.layers, sizes[:-1], sizes[1:], strict=True):
        assert layer[:3] == (start, inputs, outputs)
        assert layer.scale == (inputs**-0.5 if fan_in_scaled else 1.0)
        start += (inputs + 1) * outputs
    assert start == model.size


@pytest.mark.parametrize(
    ("ours", "numpys"), [(jax.nn.relu, lambda x: np.maximum(x, 0)), (jnp.tanh, np.tanh)]
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_apply_and_unravel_equal_a_pass_written_in_numpy(sizes, ours, numpys):
    rng = np.random.default_rng(0)
    model = mlp(sizes, activation=ours)
    params, x = rng.normal(size=model.size), rng.normal(size=sizes[0])
    blocks = _blocks(params, sizes)
    actual = model.apply(jnp.asarray(params), jnp.asarray(x))
    np.testing.assert_allclose(actual, _forward(blocks, x, numpys), rtol=1e-12, atol=1e-13)
    for (kernel, bias), block in zip(model.unravel(params), blocks, strict=True):
        np.testing.assert_array_equal(np.vstack([kernel, bias]), block)


@pytest.mark.parametrize("fan_in_scaled", [False, True])
def test_kernels_start_lecun_normal_and_biases_at_zero(fan_in_scaled):
    sizes = [400, 300, 50]
    for block in _blocks(mlp(sizes, fan_in_scaled=fan_in_scaled).init(KEY), sizes):
        kernel, bias = block[:-1], block[-1]
        expected = 1.0 if fan_in_scaled else len(kernel) ** -0.5
        assert _std_close(kernel, expected)
        assert abs(np.mean(kernel)) < 5 * expected / np.sqrt(kernel.size)
        assert np.all(bias == 0)


def test_initialisation_is_drawn_anew_for_every_key_and_layer():
    model = mlp([5, 5, 5])
    params, other = (np.asarray(model.init(key)) for key in (KEY, OTHER))
    np.testing.assert_array_equal(params, model.init(KEY))
    assert not np.any(np.isin(params[params != 0], other))
    first, second = _blocks(params, [5, 5, 5])
    assert not np.any(first[:-1] == second[:-1])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_fan_in_scaling_is_the_same_network_in_other_coordinates(sizes):
    rng = np.random.default_rng(1)
    plain, scaled = mlp(sizes), mlp(sizes, fan_in_scaled=True)
    scale = np.concatenate(
        [
            np.append(np.full(layer.inputs * layer.outputs, layer.scale), np.ones(layer.outputs))
            for layer in scaled.layers
        ]
    )
    params, x = rng.normal(size=plain.size), jnp.asarray(rng.normal(size=sizes[0]))
    actual, expected = scaled.apply(jnp.asarray(params), x), plain.apply(scale * params, x)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-13)


class _LeNet(nn.Module):
    """The paper's network, written with flax."""

    @nn.compact
    def __call__(self, x):
        for features in (32, 64):
            x = nn.relu(nn.Conv(features, (3, 3), padding="SAME")(x))
            x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(-1)))
        return nn.Dense(10)(x)


def test_lenet_is_the_papers_network_as_written_in_flax():
    model = lenet()
    rng = np.random.default_rng(2)
    params, x = jnp.asarray(0.1 * rng.normal(size=model.size)), jnp.asarray(rng.normal(size=IMAGE))
    names = ("Conv_0", "Conv_1", "Dense_0", "Dense_1")
    copied = {
        name: {"kernel": kernel, "bias": bias}
        for name, (kernel, bias) in zip(names, model.unravel(params), strict=True)
    }
    expected = _LeNet().apply({"params": copied}, x)
    assert model.size == sum(leaf.size for leaf in jax.tree.leaves(copied)) == 421_642
    assert (model.inputs, model.outputs) == (IMAGE, 10)
    np.testing.assert_allclose(model.apply(params, x), expected, rtol=1e-9, atol=1e-9)


def test_lenet_starts_lecun_normal_with_zero_biases():
    model = lenet()
    params = jax.jit(model.init)(KEY)
    assert params.shape == (model.size,)
    for kernel, bias in model.unravel(np.asarray(params)):
        assert _std_close(kernel, np.prod(kernel.shape[:-1]) ** -0.5)
        assert np.all(bias == 0)


def test_lenet_pools_away_the_odd_rows_of_other_image_sizes():
    model = lenet(inputs=(11, 14, 3), outputs=4, channels=(2, 3), hidden=5)
    dense = 2 * 3 * 3
    assert model.size == (27 * 2 + 2) + (18 * 3 + 3) + (dense + 1) * 5 + (5 + 1) * 4
    assert model.apply(jnp.ones(model.size), jnp.ones((11, 14, 3))).shape == (4,)


def _lax_lenet(params, x):
    """The same network written with XLA's own convolution and pooling."""
    image = x[None]
    *convolutions, (first, first_bias), (last, last_bias) = params
    for kernel, bias in convolutions:
        image = jax.lax.conv_general_dilated(
            image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        window = (1, 2, 2, 1)
        image = jnp.tanh(image + bias)
        image = jax.lax.reduce_window(image, 0.0, jax.lax.add, window, window, "VALID") / 4
    return jnp.tanh(image.reshape(-1) @ first + first_bias) @ last + last_bias


@pytest.mark.slow
def test_lenets_derivatives_are_those_of_xlas_own_convolution():
    rng = np.random.default_rng(3)
    model = lenet(inputs=(9, 12, 2), outputs=3, channels=(4, 5), hidden=6, activation=jnp.tanh)
    params = jnp.asarray(0.3 * rng.normal(size=model.size))
    x = jnp.asarray(rng.normal(size=model.inputs))

    def reference(params):
        return _lax_lenet(model.unravel(params), x)

    expected = jax.jacrev(reference)(params)
    eta, found = output_rows(model, params, x[None])
    close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
    close(model.apply(params, x), reference(params))
    close(eta[0], reference(params))
    close(to_dense(found), expected)
    close(jax.jacfwd(model.apply)(params, x), expected)
    small = jnp.asarray(params, jnp.float32), jnp.asarray(x, jnp.float32)
    np.testing.assert_allclose(model.apply(*small), reference(params), rtol=1e-5, atol=1e-6)


def _linen():
    module = nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(2)])

    def draw(key):
        return module.init(key, jnp.zeros(3))

    return draw, module.apply, lambda key, x: module.bind(draw(key))(x)


def _nnx():
    def make(key):
        rngs = nnx.Rngs(key)
        return nnx.Sequential(nnx.Linear(3, 8, rngs=rngs), nnx.tanh, nnx.Linear(8, 2, rngs=rngs))

    graph, _ = nnx.split(make(KEY))

    def apply(params, x):
        return nnx.merge(graph, params)(x)

    return lambda key: nnx.split(make(key))[1], apply, lambda key, x: make(key)(x)


def _equinox():
    def make(key):
        return eqx.nn.MLP(3, 2, width_size=8, depth=1, activation=jnp.tanh, key=key)

    _, static = eqx.partition(make(KEY), eqx.is_array)

    def apply(params, x):
        return eqx.combine(params, static)(x)

    return lambda key: eqx.partition(make(key), eqx.is_array)[0], apply, lambda key, x: make(key)(x)


LIBRARIES = {"linen": _linen, "nnx": _nnx, "equinox": _equinox}
each_library = pytest.mark.parametrize("library", LIBRARIES)


@each_library
@pytest.mark.parametrize("start", ["fixed", "drawn"])
def test_a_wrapped_module_gives_the_outputs_of_the_module(library, start):
    draw, apply, own = LIBRARIES[library]()
    model = wrap(apply, draw(KEY) if start == "fixed" else draw, inputs=(3,))
    params = model.init(KEY)
    x = jnp.array([0.3, -1.0, 2.0], params.dtype)
    assert (model.size, model.outputs, model.inputs) == ((3 + 1) * 8 + (8 + 1) * 2, 2, (3,))
    assert params.shape == (model.size,)
    assert [layer[:3] for layer in model.layers] == [(0, 3, 8), (32, 8, 2)]
    np.testing.assert_allclose(model.apply(params, x), own(KEY, x), rtol=1e-6)
    np.testing.assert_allclose(model.apply(params, x), apply(model.unravel(params), x), rtol=1e-6)
    jacobian = np.asarray(jax.jacobian(model.apply)(params, x))
    assert jacobian.shape == (2, model.size)
    assert np.all(np.any(jacobian != 0, axis=1))


@each_library
def test_a_wrapped_start_is_fixed_or_drawn_from_the_key(library):
    draw, apply, own = LIBRARIES[library]()
    x = jnp.ones(3)
    drawn = wrap(apply, draw, inputs=(3,))
    assert not np.array_equal(drawn.init(KEY), drawn.init(OTHER))
    np.testing.assert_allclose(drawn.apply(drawn.init(OTHER), x), own(OTHER, x), rtol=1e-6)
    fixed = wrap(apply, draw(KEY), inputs=(3,))
    np.testing.assert_array_equal(fixed.init(KEY), fixed.init(OTHER))


def test_a_wrapped_scalar_output_becomes_a_vector_of_one():
    model = wrap(lambda p, x: p["slope"] @ x, {"slope": jnp.ones(3)}, inputs=(3,))
    assert model.outputs == 1
    np.testing.assert_array_equal(model.apply(model.init(KEY), jnp.arange(3.0)), [3.0])


@pytest.mark.parametrize("sizes", [[], [3], [3, 0], [3, -1], [3, 2.5, 1]], ids=str)
def test_mlp_refuses_bad_sizes_by_name(sizes):
    with pytest.raises(ValueError, match="sizes"):
        mlp(sizes)


@pytest.mark.parametrize(
    ("argument", "value"), [("inputs", (28, 28, 0)), ("inputs", (28, 28)), ("channels", (32, -1))]
)
def test_lenet_refuses_bad_shapes_by_name(argument, value):
    with pytest.raises(ValueError, match=argument):
        lenet(**{argument: value})
