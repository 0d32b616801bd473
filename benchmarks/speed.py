"""How far a step is from reading its own memory: every estimator, in ratios, in one run.

Beside each step stand, measured in the same process: streaming 3·P·L words in place with all cores
(the memory roofline; 4·P for the diagonal filters, P² for the full one), the textbook formulation
(dense Jacobian, SVD of W̃), and one SGD step of the same net.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable
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
from bayestream.linearize import jacobian

DYNAMICS: dict[str, float] = {"decay": 0.999, "drift": 1e-6}
# Parameters 501 (UCI), 7.8k, 648,010 (the paper's MNIST network) and 10M.
NETWORKS: dict[str, list[int]] = {
    "501": [8, 50],
    "7.8k": [8, 80, 80],
    "648k": [784, 500, 500],
    "10M": [784, 2800, 2750],
}
DENSE_LIMIT = 10_000  # above this P, the full covariance does not fit


class Case(NamedTuple):
    """One row of the table."""

    method: str
    network: str
    outputs: int
    rank: int | None


class Timing(NamedTuple):
    """Seconds a step, and of what it is compared with."""

    case: Case
    parameters: int
    step: float
    roofline: float
    sgd: float
    textbook: float | None
    megabytes: float  # peak memory of the process so far


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
    """A network, a likelihood and a stream of random examples."""
    sizes = [*NETWORKS[network], outputs]
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(steps, sizes[0])).astype(np.float32)
    if outputs > 1:
        return (
            bs.models.mlp(sizes),
            bs.likelihoods.categorical(),
            (xs, rng.integers(0, outputs, steps)),
        )
    ys = rng.normal(size=(steps, 1)).astype(np.float32)
    return bs.models.mlp(sizes), bs.likelihoods.gaussian(0.1), (xs, ys)


def step_seconds(learner: bs.Estimator, stream: Any) -> float:
    """A scanned step, state donated from chunk to chunk as `run` does."""
    holder = [learner.init(jax.random.key(0))]
    xs, ys = jnp.asarray(stream[0]), jnp.asarray(stream[1])

    def body(state: Any, example: Any) -> tuple[Any, None]:
        return learner.update(learner.predict(state), *example), None

    scan = jax.jit(lambda state: jax.lax.scan(body, state, (xs, ys))[0], donate_argnums=0)

    def once() -> Any:
        holder[0] = scan(holder[0])
        return holder[0]

    return seconds(once) / len(xs)


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
        B = likelihood.fisher_factor(eta)
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
    steps = {"501": 2000, "7.8k": 300, "648k": 20, "10M": 3}[case.network]
    model, likelihood, stream = problem(case.network, case.outputs, steps)
    options: dict[str, Any] = {**DYNAMICS, **({} if case.rank is None else {"rank": case.rank})}
    learner = bs.make(case.method, model, likelihood, **options)
    textbook = None
    if case.method == "lofi" and case.network != "10M" and case.rank:
        textbook = textbook_seconds(model, likelihood, case.rank, stream)
    return Timing(
        case,
        model.size,
        step_seconds(learner, stream),
        roofline_seconds(case.method, model.size, case.rank or 0),
        sgd_seconds(model, likelihood, stream),
        textbook,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def cases(networks: list[str], ranks: list[int], outputs: list[int]) -> list[Case]:
    """Every estimator that fits."""
    rows: list[Case] = []
    for network in networks:
        for count in outputs:
            rows += [Case(m, network, count, r) for m in ("lofi", "lofi_spherical") for r in ranks]
            rows += [Case(method, network, count, None) for method in ("fdekf", "vdekf")]
            if problem(network, count, 1)[0].size <= DENSE_LIMIT:
                rows.append(Case("fcekf", network, count, None))
    return rows


def table(timings: list[Timing]) -> Table:
    """Ratios first, milliseconds second."""
    shown = Table(title=f"A step on {platform.machine()}, kernels: {bs.kernels.in_use()}")
    for name in ("method", "P", "C", "rank", "÷ roofline", "÷ SGD", "textbook ÷", "ms", "MB"):
        shown.add_column(name, justify="left" if name == "method" else "right")
    for row in timings:
        faster = "" if row.textbook is None else f"{row.textbook / row.step:.0f}×"
        shown.add_row(
            row.case.method,
            f"{row.parameters:,}",
            str(row.case.outputs),
            "" if row.case.rank is None else str(row.case.rank),
            f"{row.step / row.roofline:.1f}",
            f"{row.step / row.sgd:.1f}",
            faster,
            f"{1e3 * row.step:.3f}",
            f"{row.megabytes:,.0f}",
        )
    return shown


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 10, 50])
    parser.add_argument("--outputs", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    console = Console()
    rows = cases(options.networks, options.ranks, options.outputs)
    timings = [measure(case) for case in track(rows, "measuring", console=console)]
    console.print(table(timings))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "speed.json"
    records = [{**row._asdict(), "case": row.case._asdict()} for row in timings]
    path.write_text(json.dumps({"cpu": platform.processor(), "rows": records}, indent=1))
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
