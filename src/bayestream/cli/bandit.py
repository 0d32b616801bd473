"""`bayestream bandit`: learn which arm to pull, and see what it is worth."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.table import Table

from bayestream import likelihoods
from bayestream.checks import check_choice
from bayestream.cli import learners
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.outputs import Json, Screen, written
from bayestream.decisions import Bandit, bandits, policies
from bayestream.evaluation import Results, plots
from bayestream.progress import Progress
from bayestream.streams import datasets
from bayestream.types import Estimator, Likelihood, Stream

POLICIES: dict[str, Callable[[], policies.Policy]] = {
    "thompson": policies.thompson,
    "thompson-of-outputs": policies.thompson_of_outputs,
    "upper-confidence": policies.upper_confidence,
    "epsilon-greedy": policies.epsilon_greedy,
    "greedy": lambda: policies.epsilon_greedy(0.0),
    "random": lambda: policies.epsilon_greedy(1.0),
}
REWARDS: dict[str, Callable[[float], Likelihood]] = {
    "numbers": likelihoods.gaussian,
    "yes-or-no": lambda noise: likelihoods.bernoulli(),
    "one-pays": lambda noise: likelihoods.categorical(),
}
ENVIRONMENTS: dict[str, Callable[[int, int], Bandit]] = {
    "mnist": lambda seed, steps: _of_images(datasets.mnist(), seed, steps),
    "fashion_mnist": lambda seed, steps: _of_images(datasets.fashion_mnist(), seed, steps),
    "linear": lambda seed, steps: bandits.linear(seed, steps=steps),
    "nonlinear": lambda seed, steps: bandits.nonlinear(seed, steps=steps, changes=1),
}


def bandit(
    env: Annotated[str, typer.Option(help=f"One of {', '.join(ENVIRONMENTS)}.")] = "nonlinear",
    policy: Annotated[
        list[str] | None, typer.Option(help=f"One or more of {', '.join(POLICIES)}.")
    ] = None,
    method: learners.Method = "lofi",
    rank: learners.Rank = None,
    hidden: learners.Hidden = "50",
    rewards: Annotated[
        str,
        typer.Option(
            help="What is believed of rewards: numbers (with --noise), yes-or-no (0 or 1 for each "
            "arm), one-pays (1 for one arm, 0 for all others, as of labels)."
        ),
    ] = "numbers",
    noise: Annotated[float, typer.Option(help="The variance of rewards, as believed.")] = 0.1,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the method: drift=1e-5.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many arms are pulled.")] = 2000,
    trials: Annotated[int, typer.Option(min=1, help="Games, each with a seed of its own.")] = 3,
    warm_up: Annotated[int, typer.Option(min=0, help="First, arms in turn for so long.")] = 0,
    delay: Annotated[int, typer.Option(min=0, help="Steps until a reward is seen.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the first game.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("out/bandit"),
    as_json: Json = False,
) -> None:
    """Pull arms, see only what they pay, and learn which to pull.

    Prints the total reward and regret of each policy with their standard errors, and writes the
    running totals (totals.parquet) and a picture of them (totals.png). A network has an output for
    each arm. Ctrl-C, or SIGTERM, ends it with the games that are over and exit code 130.

    **Examples:**

    `bayestream bandit --policy thompson-of-outputs --policy epsilon-greedy`

    `bayestream bandit --env mnist --policy thompson --rank 10 --hidden 200 --steps 8000`

    `bayestream bandit --env mnist --rewards one-pays --policy greedy --hidden 200 --steps 8000`
    """
    console = Screen(as_json)
    make = check_choice("--env", env, ENVIRONMENTS)
    chosen = {
        name: check_choice("--policy", name, POLICIES)()
        for name in policy or ["thompson-of-outputs", "epsilon-greedy"]
    }
    likelihood = likelihoods.one_seen(check_choice("--rewards", rewards, REWARDS)(noise))
    settings = learners.settings(method, rank=rank, given=given or ())
    found: list[Results] = []
    spent: dict[str, list[float]] = {name: [] for name in chosen}
    learner: Estimator | None = None
    with Progress("playing", total=trials * len(chosen), show=True) as bar:
        for trial in range(trials):
            if INTERRUPTS.requested:
                break
            game = make(seed + trial, steps)
            learner = learner or _learner(game, settings, hidden, likelihood)
            key_start, key_play = jax.random.split(jax.random.key(seed + trial))
            for name, rule in chosen.items():
                if INTERRUPTS.requested:
                    break
                begin = time.perf_counter()
                state = learner.init(key_start)
                _, plays = bandits.play(
                    learner, state, game, policy=rule, key=key_play, warm_up=warm_up, delay=delay
                )
                found.append(bandits.totals(name, trial, jax.tree.map(np.asarray, plays)))
                spent[name].append((time.perf_counter() - begin) / steps)
                bar.advance(1)
    about = {"env": env, "steps": steps, "method": settings.method}
    if not found:
        console.print("interrupted before the first game was over")
        return console.report({**about, "policies": {}}, {"games": 0})
    results = Results.joined(found)
    worth = _worth(results, spent)
    console.print(_table(worth, f"{env}, {steps:,} steps, {settings.method}"))
    files = [
        *written(out / "totals.parquet", results.save),
        *written(out / "totals.png", lambda path: plots.curves(results).savefig(path, dpi=130)),
    ]
    if files:
        console.print("wrote", *map(str, files), markup=False)
    return console.report({**about, "policies": worth}, {"games": len(found)}, files)


def _of_images(stream: Stream, seed: int, steps: int) -> Bandit:
    return bandits.of_labels(stream.shuffle(seed).take(steps), arms=10)


def _learner(
    game: Bandit, chosen: learners.Settings, hidden: str, likelihood: Likelihood
) -> Estimator:
    sizes = learners.between(np.shape(game.contexts)[1], hidden, np.shape(game.rewards)[1])
    return learners.built(sizes, likelihood, chosen)


def _worth(results: Results, spent: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Of each policy the mean total reward and regret of its games, and their standard errors."""
    last = results.where(step=int(results["step"].max())).averaged()
    found: dict[str, dict[str, Any]] = {}
    for name in results.unique("method"):
        own = last.where(method=name)
        times = spent[name][1:] or spent[name]  # the first compiles
        worth: dict[str, Any] = {"games": int(own["trials"][0])}
        worth["microseconds"] = 1e6 * float(np.median(times))
        for metric in ("reward", "regret"):
            row = own.where(metric=metric)
            worth[metric] = {key: float(row[key][0]) for key in ("mean", "error")}
        found[name] = worth
    return found


def _table(worth: dict[str, dict[str, Any]], title: str) -> Table:
    shown = Table(title=title)
    for column in ("policy", "reward", "regret", "games", "µs a step"):
        shown.add_column(column, justify="left" if column == "policy" else "right")
    for name, own in worth.items():
        totals = (own[metric] for metric in ("reward", "regret"))
        cells = (f"{total['mean']:,.1f} ± {total['error']:.1f}" for total in totals)
        shown.add_row(name, *cells, str(own["games"]), f"{own['microseconds']:,.0f}")
    return shown
