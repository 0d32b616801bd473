"""How far a step is from reading its own memory: every estimator, in ratios, in one run.

Beside each step stand, measured in the same process: streaming 3·P·L words in place with all cores
(the memory roofline; 4·P for the diagonal filters, P² for the full one), the textbook formulation
(dense Jacobian, SVD of W̃), and one SGD step of the same net. Each row has a process of its own, so
that its peak memory is its own: what `bs.run` takes at most, its compilation and its stream
included, above a process that has imported everything. The rest of the machine should be idle.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import bayestream as bs
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.networks.linearize import jacobian

DYNAMICS: dict[str, float] = {"decay": 0.999, "drift": 1e-6}
# Parameters 501 (UCI), 7.8k, 648,010 (the paper's MNIST network), and powers of ten for growth.
NETWORKS: dict[str, list[int]] = {
    "501": [8, 50],
    "7.8k": [8, 80, 80],
    "648k": [784, 500, 500],
    "1M": [784, 600, 865],
    "10M": [784, 2800, 2774],
    "100M": [784, 9600, 9600],
    "lenet": [784],  # the paper's convolutions, 421,642 weights
}
STEPS = {"501": 2000, "7.8k": 300, "648k": 20, "1M": 20, "10M": 3, "100M": 2, "lenet": 20}
GRID = ["648k", "10M", "7.8k", "501"]
# Okabe–Ito colours and distinct markers: readable in print and by the colour-blind.
LOOKS = {
    "lofi": ("#D55E00", "o"),
    "lofi_spherical": ("#CC79A7", "s"),
    "fcekf": ("#000000", "^"),
    "fdekf": ("#0072B2", "v"),
    "vdekf": ("#009E73", "D"),
}
DENSE_LIMIT = 10_000  # above this P, the full covariance does not fit


class Case(NamedTuple):
    """One row of the table."""

    method: str
    network: str
    outputs: int
    rank: int | None
    trials: int = 1  # vmapped over, and divided by
    still: bool = False  # without decay and drift


class Timing(NamedTuple):
    """Seconds a step, and of what it is compared with."""

    case: Case
    parameters: int
    step: float
    full: float  # without the line search
    roofline: float
    sgd: float
    textbook: float | None
    megabytes: float  # peak memory of `bs.run`, above the interpreter with all imports


def seconds(work: Callable[[], Any], *, budget: float = 1.0) -> float:
    """The median of repeated calls, the first of which, with its compilation, is not counted."""
    jax.block_until_ready(work())
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < budget and len(times) < 30):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def problem(network: str, outputs: int, steps: int) -> tuple[bs.Model, bs.Likelihood, Any]:
    """A network, a likelihood and a stream of examples that a linear rule labels."""
    sizes = [*NETWORKS[network], outputs]
    rng = np.random.default_rng(0)
    lenet = network == "lenet"
    model = bs.models.lenet() if lenet else bs.models.mlp(sizes, activation=jax.nn.relu)
    xs = rng.normal(size=(steps, sizes[0])).astype(np.float32)
    ys = (xs @ rng.normal(size=(sizes[0], outputs)) / sizes[0] ** 0.5).astype(np.float32)
    xs = xs.reshape(steps, *model.inputs)
    if outputs > 1:
        return model, bs.likelihoods.categorical(), (xs, ys.argmax(axis=1))
    return model, bs.likelihoods.gaussian(0.1), (xs, ys)


def scanned(learner: bs.Estimator, stream: Any, trials: int = 1) -> Callable[[], Any]:
    """A call learns the whole stream once more, state donated from chunk to chunk as `run` does."""
    keys = jax.random.split(jax.random.key(0), trials)
    holder = [jax.vmap(learner.init)(keys) if trials > 1 else learner.init(keys[0])]
    xs, ys = jnp.asarray(stream[0]), jnp.asarray(stream[1])

    def one(state: Any, x: Any, y: Any) -> Any:
        return learner.update(learner.predict(state), x, y)

    step = jax.vmap(one, in_axes=(0, None, None)) if trials > 1 else one

    def body(state: Any, example: Any) -> tuple[Any, None]:
        return step(state, *example), None

    scan = jax.jit(lambda state: jax.lax.scan(body, state, (xs, ys))[0], donate_argnums=0)

    def once() -> Any:
        holder[0] = scan(holder[0])
        return holder[0]

    return once


def step_seconds(learner: bs.Estimator, stream: Any, trials: int) -> float:
    """A scanned step of one trial."""
    return seconds(scanned(learner, stream, trials)) / len(stream[0]) / trials


def megabytes(which: str) -> float:
    """Memory of the process now (VmRSS) or at its peak (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {which} in /proc/self/status")


def run_megabytes(learner: bs.Estimator, stream: Any) -> float:
    """Peak memory of a whole run, compilation included, above what the imports take."""
    jax.block_until_ready(jnp.zeros(1))
    before = megabytes("VmRSS")
    state, _ = bs.run(learner, learner.init(jax.random.key(0)), stream, progress=False)
    jax.block_until_ready(state)
    return megabytes("VmHWM") - before


def roofline_seconds(method: str, size: int, rank: int) -> float:
    """The least a step must do to its memory, with all cores: LO-FI reads W, then rewrites it."""
    words = {"fcekf": size**2, "fdekf": 4 * size, "vdekf": 4 * size}.get(method, size * rank)
    array = [jnp.ones(max(words, 1), jnp.float32)]
    rewrite = jax.jit(lambda a: a * 1.0000001, donate_argnums=0)
    read = jax.jit(jnp.max)

    def once() -> Any:
        total = read(array[0]) if "lofi" in method else None
        array[0] = rewrite(array[0])
        return total, array[0]

    return seconds(once)


def sgd_seconds(model: bs.Model, likelihood: bs.Likelihood, stream: Any) -> float:
    """One plain gradient step on one example, scanned."""
    xs, ys = jnp.asarray(stream[0]), jnp.asarray(stream[1], jnp.float32)
    optimiser = optax.sgd(1e-3)
    holder = [model.init(jax.random.key(0))]

    def body(params: Any, example: Any) -> tuple[Any, None]:
        x, y = example
        gradient = jax.grad(lambda p: -likelihood.log_density(model.apply(p, x), y))(params)
        updates, _ = optimiser.update(gradient, optimiser.init(params))
        return optax.apply_updates(params, updates), None

    scan = jax.jit(lambda params: jax.lax.scan(body, params, (xs, ys))[0], donate_argnums=0)

    def once() -> Any:
        holder[0] = scan(holder[0])
        return holder[0]

    return seconds(once) / len(xs)


def textbook_seconds(model: bs.Model, likelihood: bs.Likelihood, rank: int, stream: Any) -> float:
    """Algorithms 2 and 3 as printed: dense Jacobian, one SVD of W̃, Woodbury by a difference."""
    gamma, q = DYNAMICS["decay"], DYNAMICS["drift"]
    x, y = jnp.asarray(stream[0][0]), jnp.asarray(stream[1][0], jnp.float32)
    mean = model.init(jax.random.key(0))
    W = 0.01 * jax.random.normal(jax.random.key(1), (rank, model.size))
    holder = [DLRGaussian(mean, jnp.ones(model.size), W)]

    def step(belief: DLRGaussian) -> DLRGaussian:
        mu, upsilon, W = belief.mean, belief.diag, belief.factor.T
        diag = 1 / (gamma**2 / upsilon + q)
        ratio = (diag / upsilon)[:, None]
        C = jnp.linalg.inv(jnp.eye(rank) + q * W.T @ (ratio * W))
        W = gamma * ratio * W @ jnp.linalg.cholesky(C)
        mu = gamma * mu
        eta, F = jacobian(model, mu, x)
        B, _ = likelihood.seen(eta, y)
        wide = jnp.concatenate([W, F.T @ B], axis=1)
        scaled = wide / diag[:, None]
        gain = jnp.linalg.inv(jnp.eye(wide.shape[1]) + wide.T @ scaled)
        g = F.T @ likelihood.score(eta, y)
        mu = mu + g / diag - scaled @ (gain @ (scaled.T @ g))
        U, S, _ = jnp.linalg.svd(wide, full_matrices=False)
        rotated = U * S
        return DLRGaussian(mu, diag + jnp.sum(rotated[:, rank:] ** 2, axis=1), rotated[:, :rank].T)

    jitted = jax.jit(step, donate_argnums=0)

    def once() -> Any:
        holder[0] = jitted(holder[0])
        return holder[0]

    return seconds(once)


def measure(case: Case) -> Timing:
    """Everything for one row."""
    steps = STEPS[case.network] if case.method != "fcekf" or case.network == "501" else 5
    model, likelihood, stream = problem(case.network, case.outputs, steps)
    options: dict[str, Any] = {} if case.still else dict(DYNAMICS)
    if case.rank is not None:
        options["rank"] = case.rank
    learner = bs.make(case.method, model, likelihood, **options)
    full = bs.make(case.method, model, likelihood, line_search=None, **options)
    peak = run_megabytes(learner, stream)
    textbook = None
    large = case.network in ("10M", "100M", "lenet")
    if case.method == "lofi" and not large and case.trials == 1 and not case.still:
        textbook = textbook_seconds(model, likelihood, case.rank or 0, stream)
    return Timing(
        case,
        model.size,
        step_seconds(learner, stream, case.trials),
        step_seconds(full, stream, case.trials),
        roofline_seconds(case.method, model.size, case.rank or 0),
        sgd_seconds(model, likelihood, stream),
        textbook,
        peak,
    )


def cases(networks: list[str], ranks: list[int], outputs: list[int]) -> list[Case]:
    """Every estimator that fits, and what the promises need besides."""
    rows: list[Case] = []
    if set(networks) == set(GRID):
        rows += [Case("lofi", network, 10, 10) for network in ("100M", "1M")]
        rows += [Case("lofi", "501", 1, 10, trials=20)]
        rows += [Case("lofi", "lenet", 10, 10), Case("lofi", "648k", 10, 10, still=True)]
    for network in networks:
        for count in outputs:
            rows += [Case("lofi", network, count, rank) for rank in ranks]
            rows += [Case("lofi_spherical", network, count, rank) for rank in ranks]
            rows += [Case(method, network, count, None) for method in ("fdekf", "vdekf")]
            if problem(network, count, 1)[0].size <= DENSE_LIMIT:
                rows.append(Case("fcekf", network, count, None))
    return rows


def measured(
    rows: list[Case], path: Path, console: Console, alone: Callable[..., Any]
) -> list[Timing]:
    """One row at a time, written down after each."""
    timings: list[Timing] = []
    for case in track(rows, "measuring", console=console):
        timings.append(alone(measure, case))
        records = [{**row._asdict(), "case": row.case._asdict()} for row in timings]
        path.write_text(json.dumps({"cpu": platform.processor(), "rows": records}, indent=1))
    return timings


def table(timings: list[Timing]) -> Table:
    """Ratios first, milliseconds second."""
    shown = Table(title=f"A step on {platform.machine()}, kernels: {bs.kernels.in_use()}")
    for name in ("method", "P", "C", "rank", "÷roof", "÷SGD", "÷full", "book÷", "ms", "MB"):
        shown.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in timings:
        also = f" ×{row.case.trials}" if row.case.trials > 1 else " still" * row.case.still
        shown.add_row(
            row.case.method + also,
            f"{row.parameters:,}",
            str(row.case.outputs),
            "" if row.case.rank is None else str(row.case.rank),
            f"{row.step / row.roofline:.1f}",
            f"{row.step / row.sgd:.1f}",
            f"{row.step / row.full:.2f}",
            "" if row.textbook is None else f"{row.textbook / row.step:.0f}×",
            f"{1e3 * row.step:.3f}",
            f"{row.megabytes:,.0f}",
        )
    return shown


def forecast_ratio() -> float:
    """Probit over plugin forecasts of 100 images by `lenet`."""
    model, likelihood, (xs, _) = problem("lenet", 10, 100)
    learner = bs.make("lofi", model, likelihood, rank=10, **DYNAMICS)
    state = learner.init(jax.random.key(0))

    def forecast(how: Callable[..., Any]) -> float:
        work = jax.jit(lambda state, xs: how(learner, state, xs).mean)
        return seconds(lambda: work(state, xs))

    return forecast(bs.predictive.probit) / forecast(bs.predictive.plugin)


def columns_ratio() -> float:
    """A step of 1,000 outputs by 10 columns over one of 10 outputs; 1.76 times the weights."""
    few, likelihood, stream = problem("648k", 10, STEPS["648k"])
    many, _, (xs, ys) = problem("648k", 1_000, STEPS["648k"])
    learner = bs.lofi(many, bs.likelihoods.categorical(columns=10), rank=10, **DYNAMICS)
    ten = step_seconds(bs.lofi(few, likelihood, rank=10, **DYNAMICS), stream, 1)
    return step_seconds(learner, (xs, ys), 1) / ten


def decision_ratio() -> float:
    """Thompson sampling of the weights over that of the outputs, a decision, P = 158,810."""
    model = bs.models.mlp([784, 200, 10])
    noise = bs.likelihoods.one_seen(bs.likelihoods.gaussian(0.01))
    learner = bs.lofi(model, noise, rank=10)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random(784), jnp.float32)
    rewards = jnp.full((20, 10), jnp.nan).at[jnp.arange(20), jnp.arange(20) % 10].set(1.0)
    state, _ = bs.run(learner, learner.init(jax.random.key(0)), (rng.random((20, 784)), rewards))

    def decision(policy: Any) -> float:
        choose = jax.jit(lambda state, key: policy(learner, state, x, key, 0))
        return seconds(lambda: choose(state, jax.random.key(1)))

    return decision(bs.policies.thompson()) / decision(bs.policies.thompson_of_outputs())


def replay_ratio() -> float:
    """`replay_sgd` with Adam and 10 examples over the same written plainly in JAX and optax."""
    model, likelihood, (xs, ys) = problem("648k", 10, STEPS["648k"])
    adam = optax.adam(1e-3)
    ours = step_seconds(bs.replay_sgd(model, likelihood, buffer=10, optimiser=adam), (xs, ys), 1)
    params = model.init(jax.random.key(0))
    holder = [(params, adam.init(params), jnp.zeros((10, 784)), jnp.zeros(10, int), 0)]

    def body(carry: Any, example: Any) -> tuple[Any, None]:
        params, state, kept_x, kept_y, count = carry
        kept_x, kept_y = (
            kept.at[count % 10].set(new)
            for kept, new in zip((kept_x, kept_y), example, strict=True)
        )

        def loss(params: Any) -> Any:
            logits = jax.vmap(lambda x: model.apply(params, x))(kept_x)
            each = optax.softmax_cross_entropy_with_integer_labels(logits, kept_y)
            return jnp.sum(jnp.where(jnp.arange(10) <= count, each, 0.0))

        updates, state = adam.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state, kept_x, kept_y, count + 1), None

    stream = jnp.asarray(xs), jnp.asarray(ys)
    scan = jax.jit(lambda carry: jax.lax.scan(body, carry, stream)[0], donate_argnums=0)

    def once() -> Any:
        holder[0] = scan(holder[0])
        return holder[0]

    return ours / (seconds(once) / len(xs))


def wrapped_ratios() -> tuple[float, float]:
    """A step on the MLP of flax, and on that of equinox, over one on `mlp`: in turn, the least."""
    import equinox as eqx
    from flax import linen

    inputs, *hidden = NETWORKS["648k"]
    model, likelihood, stream = problem("648k", 10, 4)
    key = jax.random.key(0)
    layers = [layer for size in hidden for layer in (linen.Dense(size), linen.relu)]
    flax = linen.Sequential([*layers, linen.Dense(10)])
    equinox = eqx.nn.MLP(inputs, 10, hidden[0], len(hidden), jax.nn.relu, key=key)
    params, static = eqx.partition(equinox, eqx.is_array)
    networks = [
        model,
        bs.models.wrap(flax.apply, flax.init(key, stream[0][0]), inputs=(inputs,)),
        bs.models.wrap(lambda p, x: eqx.combine(p, static)(x), params, inputs=(inputs,)),
    ]
    works = [scanned(bs.lofi(each, likelihood, rank=10, **DYNAMICS), stream) for each in networks]
    rounds = [[seconds(work, budget=0.0) for work in works] for _ in range(20)]
    ours, of_flax, of_equinox = np.min(rounds, axis=0)
    return of_flax / ours, of_equinox / ours


def arithmetic_seconds(parameters: int, rank: int, outputs: int) -> float:
    """A step's multiply–adds at the rate of a large product of matrices on this machine.

    For each weight: three Gram triangles of W, W's sums with an example twice, the new rows and
    those dropped as triangles, and the mean's.
    """
    triangle = rank * (rank + 1) // 2
    dropped = sum(max(rank - i, 0) for i in range(outputs))
    sums = 3 * triangle + 2 * rank
    made = triangle + dropped + rank + (rank + outputs + 1)
    square = jnp.ones((2048, 2048), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    rate = 2048**3 / seconds(lambda: product(square))
    return parameters * (sums + made) / rate


def promises(timings: list[Timing], alone: Callable[..., Any]) -> Table:
    """What we set out to reach, and what this machine says; `alone` calls in a fresh process."""
    by_case = {row.case: row for row in timings}
    big, wide = by_case[Case("lofi", "648k", 10, 10)], by_case[Case("lofi", "648k", 10, 50)]
    small = by_case[Case("lofi", "501", 1, 10)]
    trials = by_case[Case("lofi", "501", 1, 10, trials=20)]
    one, ten = by_case[Case("lofi", "1M", 10, 10)], by_case[Case("lofi", "10M", 10, 10)]
    diagonals = [by_case[Case(method, "648k", 10, None)] for method in ("vdekf", "fdekf")]
    full = by_case[Case("fcekf", "501", 1, None)]
    hundred = by_case[Case("lofi", "100M", 10, 10)]
    sphere = by_case[Case("lofi_spherical", "648k", 10, 10)]
    small_sphere = by_case[Case("lofi_spherical", "501", 1, 10)]
    still = by_case[Case("lofi", "648k", 10, 10, still=True)]
    lenet = by_case[Case("lofi", "lenet", 10, 10)]
    floor = alone(arithmetic_seconds, big.parameters, 10, 10)
    shown = Table(title="Promised and measured (P=648,010 and C=10 unless it says otherwise)")
    for name in ("work", "promised", "measured"):
        shown.add_column(name)
    growth = ten.step / one.step * 10 * one.parameters / ten.parameters
    for line in (
        ("lofi rank 10 ÷ roofline", "≤ 4", f"{big.step / big.roofline:.1f}"),
        (
            "textbook ÷ lofi rank 10",
            "≥ 25",
            f"{(big.textbook or 0) / big.step:.0f}",
        ),
        ("line search, lofi rank 10 ÷ its full step", "≤ 1.15", f"{big.step / big.full:.2f}"),
        ("same, P=501, C=1", "≤ 1.30", f"{small.step / small.full:.2f}"),
        ("lofi rank 50 ÷ roofline", "≤ 4", f"{wide.step / wide.roofline:.1f}"),
        ("lofi rank 10, P=501, C=1", "≤ 30 µs", f"{1e6 * small.step:.0f} µs"),
        ("same, 20 trials under vmap, each", "≤ 20 µs", f"{1e6 * trials.step:.0f} µs"),
        ("spherical rank 10 ÷ lofi rank 10", "≤ 0.8", f"{sphere.step / big.step:.2f}"),
        ("spherical rank 10, P=501, C=1", "≤ 20 µs", f"{1e6 * small_sphere.step:.0f} µs"),
        ("lofi rank 50 ÷ lofi rank 10", "≤ 5", f"{wide.step / big.step:.1f}"),
        ("lofi rank 10, decay 1, drift 0 ÷ with both", "≤ 0.8", f"{still.step / big.step:.2f}"),
        ("lofi rank 10 on lenet ÷ on the 648k MLP", "≤ 1", f"{lenet.step / big.step:.2f}"),
        ("lenet's probit ÷ plugin, 100 inputs", "≤ 12", f"{alone(forecast_ratio):.1f}"),
        ("1,000 outputs by 10 columns ÷ 10 outputs", "≤ 1.5", f"{alone(columns_ratio):.2f}"),
        (
            "Thompson's draw of weights ÷ of outputs, P=158,810",
            "≥ 2",
            f"{alone(decision_ratio):.1f}",
        ),
        (
            "lofi rank 10 on a wrapped flax, equinox MLP ÷ on mlp",
            "≤ 1.1",
            ", ".join(f"{ratio:.2f}" for ratio in alone(wrapped_ratios)),
        ),
        ("replay_sgd, Adam, 10 examples ÷ plain JAX", "≤ 1.1", f"{alone(replay_ratio):.2f}"),
        ("lofi rank 10 ÷ its arithmetic at sgemm's rate", "≤ 2", f"{big.step / floor:.1f}"),
        ("fcekf, P=501, C=1", "≤ 250 µs", f"{1e6 * full.step:.0f} µs"),
        (
            "vdekf, fdekf ÷ a pass over 4 P",
            "≤ 6",
            ", ".join(f"{row.step / row.roofline:.1f}" for row in diagonals),
        ),
        (
            "peak memory of a rank-10 run (of P=501: the compiler's)",
            "≤ 160 MB",
            f"{big.megabytes:.0f} MB ({small.megabytes:.0f} MB)",
        ),
        ("lofi rank 10, ten times the parameters of 1M", "≤ 11", f"{growth:.1f}"),
        (
            "lofi rank 10 on 100M parameters",
            "runs",
            f"{hundred.step:.2f} s a step, {hundred.step / hundred.roofline:.1f} × roofline, "
            f"{hundred.megabytes / 1024:.1f} GiB",
        ),
    ):
        shown.add_row(*line)
    return shown


def draw(timings: list[Timing], path: Path) -> None:
    """Time against the number of parameters and against the rank, log–log."""
    import matplotlib.pyplot as plt

    def line(axis: Any, label: str, points: list[tuple[float, float]], **style: Any) -> None:
        if len(points) > 1:
            axis.plot(*zip(*sorted(points), strict=True), label=label, **style)

    def panel(axis: Any, rows: list[Timing], across: Callable[[Timing], float]) -> None:
        for method, (color, marker) in LOOKS.items():
            points = [(across(r), 1e3 * r.step) for r in rows if r.case.method == method]
            line(axis, method, points, color=color, marker=marker)
        low_rank = [r for r in rows if r.case.method == "lofi"]
        books = [(across(r), 1e3 * r.textbook) for r in low_rank if r.textbook]
        line(axis, "textbook LO-FI", books, color="0.5", ls="--", marker=".")
        line(axis, "SGD", [(across(r), 1e3 * r.sgd) for r in low_rank], color="0.5", ls="-.")
        streams = [(across(r), 1e3 * r.roofline) for r in low_rank]
        line(axis, "roofline of LO-FI", streams, color="0.2", ls=":")
        axis.set(xscale="log", yscale="log", ylabel="milliseconds a step")
        axis.grid(alpha=0.3)

    rows = [r for r in timings if r.case.outputs == 10 and r.case.network != "lenet"]
    rows = [r for r in rows if r.case.trials == 1 and not r.case.still]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    panel(left, [r for r in rows if r.case.rank in (None, 10)], lambda r: r.parameters)
    left.set(xlabel="parameters P", title="rank 10, 10 outputs")
    left.legend(fontsize=8)
    wide = [r for r in rows if r.case.network == "648k" and r.case.rank]
    panel(right, wide, lambda r: r.case.rank or 0)
    right.set(xlabel="rank L", title="P = 648,010, 10 outputs")
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """Measure, print, write JSON, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=GRID, default=GRID)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 10, 50])
    parser.add_argument("--outputs", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    data, picture = options.out / "speed.json", options.out / "speed.png"
    rows = cases(options.networks, options.ranks, options.outputs)
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:

        def alone(work: Callable[..., Any], *args: Any) -> Any:
            return pool.submit(work, *args).result()

        timings = measured(rows, data, console, alone)
        console.print(table(timings))
        if set(options.networks) == set(GRID) and {10, 50} <= set(options.ranks):
            console.print(promises(timings, alone))
    draw(timings, picture)
    console.print(f"wrote {data} and {picture}")


if __name__ == "__main__":
    main()
