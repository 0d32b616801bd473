"""How far L-RVGA and LO-FI end from the exact posterior of a linear regression, by rank.

A problem of the kind the L-RVGA authors use: 1,000 observations of 100 inputs from a Gaussian whose
covariance has eigenvalues proportional to 1, 1/2, …, 1/100 in random directions (their squares sum
to 1 after scaling by that sum), unit noise, prior N(0, I). Prints KL(approximation ‖ exact) after
one pass, beside the figures reported for the authors' own draw of such a problem.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
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
    eigenvalues = 1 / np.arange(1, INPUTS + 1)
    eigenvalues /= np.sum(eigenvalues**2)
    x = rng.normal(size=(COUNT, INPUTS)) * np.sqrt(eigenvalues) @ directions.T
    truth = rng.uniform(-1, 1, INPUTS)
    y = x @ (truth / np.linalg.norm(truth)) + rng.normal(size=COUNT)
    return x, y[:, None]


def divergence(learner: bs.Estimator, x: np.ndarray, y: np.ndarray) -> float:
    """KL(approximation ‖ exact posterior) after one pass, in double precision."""
    start = learner.init(jax.random.key(0))
    state, _ = bs.run(learner, start, (x, y), record=None, progress=False)
    belief = state.belief.base if hasattr(state.belief, "base") else state.belief
    precision = np.eye(INPUTS) + x.T @ x
    mean = jnp.asarray(np.linalg.solve(precision, x.T @ y[:, 0]))
    exact = dense.DenseGaussian(mean, jnp.linalg.inv(precision))
    return float(dense.kl(dlr.to_dense(belief), exact))


def main() -> None:
    """Measure and print."""
    jax.config.update("jax_enable_x64", True)
    console = Console()
    x, y = problem(1)
    model = bs.models.wrap(lambda w, x: (w @ x)[None], jnp.zeros(INPUTS), inputs=(INPUTS,))
    likelihood = bs.likelihoods.gaussian(1.0)
    shown = Table(title=f"KL to the exact posterior, d={INPUTS}, N={COUNT}")
    for name in ("rank", "lofi", "lrvga, 3 iterations", "lrvga, 20", "authors, their draw"):
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
