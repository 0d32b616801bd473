"""How far L-RVGA and LO-FI end from the exact posterior of a linear regression, by rank.

A problem of the kind the L-RVGA authors use: 1,000 observations, 100 inputs drawn from a Gaussian
whose covariance has eigenvalues 1, 1/2, …, 1/100 in random directions, unit noise, prior variance
1.
Prints KL(approximation ‖ exact) after one pass, and the figures that the LO-FI paper's protocol
reports for the authors' own problem.
"""

from __future__ import annotations

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import bayestream as bs
from bayestream.gaussians import dense, dlr

INPUTS, COUNT = 100, 1000
RANKS = (10, 20, 50, 100)
AUTHORS = dict(zip(RANKS, (23.5, 14.6, 5.7, 5.4), strict=True))


def problem(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets."""
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.normal(size=(INPUTS, INPUTS)))
    scales = 1 / np.sqrt(np.arange(1, INPUTS + 1))
    x = rng.normal(size=(COUNT, INPUTS)) * scales @ directions.T
    y = x @ rng.normal(size=INPUTS) + rng.normal(size=COUNT)
    return x, y[:, None]


def divergence(learner: bs.Estimator, x: np.ndarray, y: np.ndarray) -> float:
    """KL(approximation ‖ exact posterior) after one pass, in double precision."""
    start = learner.init(jax.random.key(0))
    state, _ = bs.run(learner, start, (x, y), record=None, progress=False)
    belief = state.belief.base if hasattr(state.belief, "base") else state.belief
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    precision = np.eye(INPUTS + 1) + design.T @ design
    prior = np.asarray(learner.mean(start))
    mean = np.linalg.solve(precision, prior + design.T @ y[:, 0])
    exact = dense.DenseGaussian(jax.numpy.asarray(mean), jax.numpy.linalg.inv(precision))
    return float(dense.kl(dlr.to_dense(belief), exact))


def main() -> None:
    """Measure and print."""
    jax.config.update("jax_enable_x64", True)
    console = Console()
    x, y = problem(0)
    model, likelihood = bs.models.mlp([INPUTS, 1]), bs.likelihoods.gaussian(1.0)
    shown = Table(title=f"KL to the exact posterior, d={INPUTS}, N={COUNT}")
    for name in ("rank", "lofi", "lrvga, 3 iterations", "lrvga, 20", "authors' L-RVGA, their data"):
        shown.add_column(name, justify="right")
    for rank in track(RANKS, "measuring", console=console):
        found = [
            divergence(bs.lofi(model, likelihood, rank=rank), x, y),
            divergence(bs.lrvga(model, likelihood, rank=rank, iterations=3), x, y),
            divergence(bs.lrvga(model, likelihood, rank=rank, iterations=20), x, y),
        ]
        shown.add_row(str(rank), *(f"{kl:.2f}" for kl in found), str(AUTHORS[rank]))
    console.print(shown)


if __name__ == "__main__":
    main()
