"""What the paper says of UCI regression, and the rules by which the trials decide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from bayestream.evaluation import Results
from bayestream.experiments.uci_report import FAMILIES, RANKS, cells, seconds, typical
from bayestream.experiments.verdicts import (
    AIM,
    Claim,
    Judgement,
    Verdict,
    beside_the_best,
    best,
    losses,
    nearest,
    share,
    standard_error,
)

GOAL = 0.95  # of the cells
MOST = 0.9  # "helps", "consistently"
RANKED = FAMILIES[:4]
YACHT = (
    "a seventh setting that learns its noise slowly: with rank 50 it took naval from 2.1 to .7. On "
    "yacht the best is replay of 50 examples with ten steps for each, ahead of all tuned filters."
)
TENS = ("lofi-diag-10", "lofi-sph-10", "lrvga-10", "sgd-rb-10", "fdekf", "vdekf", "fcekf")


def _within(passes: int) -> Callable[[Results], Judgement | None]:
    def judge(results: Results) -> Judgement | None:
        rows = [r for r in cells(results) if r["world"].endswith(f" x{passes}")]
        judged = [r for r in rows if r["paper mean"] is not None and r["splits"] > 1]
        met = [row["verdict"] != "fails" for row in judged]
        found = share(met, GOAL, "the cells")
        return found and found._replace(ours=f"{found.ours} cells ({np.mean(met):.0%})")

    return judge


def _means(results: Results) -> dict[tuple[str, str], float]:
    return {(row["world"], row["line"]): row["mean"] for row in cells(results)}


def _slower(results: Results) -> Judgement | None:
    spent = seconds(results)
    worlds = [
        world for world, line in spent if line == "lrvga-10" and (world, "lofi-diag-10") in spent
    ]
    if len(worlds) < 2:
        return None
    ratios = np.array([spent[w, "lrvga-10"] / spent[w, "lofi-diag-10"] for w in worlds])
    mean, error = float(np.mean(ratios)), standard_error(ratios)
    ours = f"{mean:.1f} ± {error:.1f} times, over {len(ratios)} sets"
    return Judgement("about 20 times", ours, (mean - 20) / error, "holds" if mean > 10 else "fails")


def _untuned(own: str) -> Callable[[Results], Judgement | None]:
    """How far an untuned average is from the best of all tuned lines, one pass, on its splits."""

    def judge(results: Results) -> Judgement | None:
        ratios: dict[str, float] = {}
        for world in results.unique("world"):
            if not world.endswith(" x1"):
                continue
            lines = results.where(world=world).unique("method")
            tuned = [line for line in lines if not line.startswith("self-tuning")]
            found = beside_the_best(results, world, "rmse", own, tuned, step=None)
            if found is not None:
                ratios[world.removesuffix(" x1")] = found[0] / found[2]
        if not ratios:
            return None
        met = sum(ratio <= 1.05 for ratio in ratios.values())
        listed = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        verdict = "holds" if met == len(ratios) else "fails"
        return Judgement(
            "≤ 1.05 × the tuned best", f"{met} of {len(ratios)}: {listed}", float("nan"), verdict
        )

    return judge


def _more_helps(before: str, after: str) -> Callable[[Results], Judgement | None]:
    """More ranks, or more passes, lead to less error: of how many cells of the tables.

    >>> import bayestream.experiments.uci_claims as claims
    >>> sorted({line for _, line in claims._steps("rank 1", "rank 50")})
    ['lofi-diag-50', 'lofi-sph-50', 'lrvga-50', 'sgd-rb-50']
    """

    def judge(results: Results) -> Judgement | None:
        means = _means(results)
        pairs = _steps(before, after)
        met = [
            means[large] < means[small]
            for large, small in pairs.items()
            if large in means and small in means
        ]
        return share(met, MOST, "the cells")

    return judge


def _steps(before: str, after: str) -> dict[tuple[str, str], tuple[str, str]]:
    """The cells of `after` (x10, rank 50), and those of `before` they are held against."""
    sets = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval")
    lines = [f"{family}-{rank}" for family, rank in product(RANKED, RANKS)]
    if after.startswith("rank"):
        low, high = (name.removeprefix("rank ") for name in (before, after))
        return {
            (f"{name} x{passes}", f"{family}-{high}"): (f"{name} x{passes}", f"{family}-{low}")
            for name, passes, family in product(sets, (1, 10, 50), RANKED)
        }
    return {
        (f"{name} {after}", line): (f"{name} {before}", line)
        for name, line in product(sets, [*lines, "fdekf", "vdekf", "fcekf"])
    }


def _place(lines: Sequence[str], place: int) -> Callable[[Results], Judgement | None]:
    """After one pass, one of these lines has this place among all of rank 10, on most sets."""

    def judge(results: Results) -> Judgement | None:
        means = _means(results)
        worlds = dict.fromkeys(world for world, _ in means if world.endswith(" x1"))
        ranked = [
            sorted((name for name in TENS if (world, name) in means), key=lambda n: means[world, n])
            for world in worlds
        ]
        return share(
            [each[place] in lines for each in ranked if len(each) > place], 0.5, "the sets"
        )

    return judge


def _ratio(
    value: Callable[[Results], dict[str, float]], line: str, other: str, limit: float
) -> Callable[[Results], Judgement | None]:
    """A line's value is at most so many times another's; values are of all sets together."""

    def judge(results: Results) -> Judgement | None:
        found = value(results)
        if line not in found or other not in found:
            return None
        ratio = found[line] / found[other]
        verdict: Verdict = "holds" if ratio <= limit else "fails"
        return Judgement(f"≤ {limit:g} times {other}", f"{ratio:.2f} times", float("nan"), verdict)

    return judge


def _errors(results: Results) -> dict[str, float]:
    return {line: error for line, (_, error) in typical(results).items()}


def _times(results: Results) -> dict[str, float]:
    return {line: spent for line, (spent, _) in typical(results).items()}


def _on_energy(results: Results) -> dict[str, float]:
    return {line: mean for (world, line), mean in _means(results).items() if world == "energy x1"}


def _dominates(family: str, other: str) -> Callable[[Results], Judgement | None]:
    """For each of the other's ranks, one of the family is as quick and has less error."""

    def judge(results: Results) -> Judgement | None:
        points = typical(results)
        mine = [each for line, each in points.items() if line.startswith(f"{family}-")]
        theirs = [each for line, each in points.items() if line.startswith(f"{other}-")]
        met = [any(s <= spent and e < error for s, e in mine) for spent, error in theirs]
        return share(met, 1.0, f"the points of {other}") if mine else None

    return judge


def _falls_fastest(results: Results) -> Judgement | None:
    """What a rank of 50 gains over a rank of 1, on energy, is most for LO-FI."""

    def change(family: str) -> dict[int, float]:
        few, many = (
            losses(results, "energy x1", f"{family}-{rank}", "rmse")
            for rank in (RANKS[0], RANKS[-1])
        )
        return {split: many[split] - few[split] for split in few.keys() & many.keys()}

    found = nearest("lofi-diag", change("lofi-diag"), {f: change(f) for f in ("lrvga", "sgd-rb")})
    return found and found._replace(paper="lofi-diag falls most")


def _of_energy(
    text: str, source: str, line: str, others: Sequence[str], step: int | None = None
) -> Claim:
    return Claim(text, f"Figure “{source}”", best("energy x1", "rmse", line, others, step=step))


CLAIMS = (
    *(
        Claim(
            f"Passes: {passes}. Our RMSE is at most one of the paper's standard deviations above "
            "the paper's, in 95% of the cells.",
            "RMSE tables; the target is ours",
            _within(passes),
        )
        for passes in (1, 10, 50)
    ),
    _of_energy(
        "On energy LO-FI of rank 10 beats L-RVGA of rank 10, at the end of the pass.",
        "energy",
        "lofi-diag-10",
        ["lrvga-10"],
    ),
    _of_energy("The same, over the pass.", "energy", "lofi-diag-10", ["lrvga-10"], -1),
    *(
        _of_energy(
            f"On energy {name} of rank 10 beats the diagonal EKFs and replay SGD.",
            "energy",
            line,
            ["fdekf", "vdekf", "sgd-rb-10"],
        )
        for name, line in (("LO-FI", "lofi-diag-10"), ("L-RVGA", "lrvga-10"))
    ),
    _of_energy(
        "On energy the full-covariance EKF learns from the fewest examples: over the pass it is "
        "ahead.",
        "energy",
        "fcekf",
        ["lofi-diag-10", "lrvga-10", "fdekf", "sgd-rb-10"],
        -1,
    ),
    _of_energy(
        "On energy a higher rank improves LO-FI: rank 50 is ahead of all others.",
        "energy-xval",
        "lofi-diag-50",
        [f"lofi-diag-{rank}" for rank in RANKS[:-1]],
    ),
    Claim(
        "Rank 50 has essentially matched the full covariance: at most 1.2 times its error (the "
        "paper's are 1.16 times apart).",
        "Figure “energy-xval”",
        _ratio(_on_energy, "lofi-diag-50", "fcekf", 1.2),
    ),
    Claim(
        "On energy the error falls faster with the rank for LO-FI than for L-RVGA and replay SGD.",
        "Figure “energy-rank-passes”",
        _falls_fastest,
    ),
    Claim(
        "A higher rank helps all low-rank and memory-based methods: 50 beats 1, on nine in ten "
        "cells.",
        "RMSE tables",
        _more_helps("rank 1", "rank 50"),
    ),
    *(
        Claim(
            f"More passes help: {after[1:]} are better than {before[1:]}, on nine in ten cells.",
            "RMSE tables",
            _more_helps(before, after),
        )
        for before, after in (("x1", "x10"), ("x10", "x50"))
    ),
    Claim(
        "In general the full-covariance EKF is the best: after one pass, on most sets, of the "
        "methods of rank 10.",
        "Table “uci-regression-rank10”",
        _place(["fcekf"], 0),
    ),
    Claim(
        "LO-FI is usually in second place.",
        "Table “uci-regression-rank10”",
        _place(["lofi-diag-10", "lofi-sph-10"], 1),
    ),
    Claim(
        "Spherical LO-FI performs comparably: its error is at most 1.1 times as large, rank 10.",
        "RMSE tables",
        _ratio(_errors, "lofi-sph-10", "lofi-diag-10", 1.1),
    ),
    Claim(
        "Spherical LO-FI is faster (elsewhere the paper says that times are indistinguishable).",
        "Table “datasets-1pass-time”",
        _ratio(_times, "lofi-sph-10", "lofi-diag-10", 1.0),
    ),
    Claim(
        "L-RVGA is about 20 times slower than LO-FI.",
        "Figure “pareto”",
        _slower,
        "L-RVGA as it was here before, its sweeps in pure JAX: 22.9 ± 2.0 times. Now they are a "
        "native kernel, as LO-FI's passes are.",
    ),
    *(
        Claim(
            f"For the same time of computing, {name}.", "Figure “pareto”", _dominates(line, other)
        )
        for name, line, other in (
            ("LO-FI has less error than L-RVGA", "lofi-diag", "lrvga"),
            ("LO-FI has less error than replay SGD", "lofi-diag", "sgd-rb"),
            ("L-RVGA has less error than replay SGD", "lrvga", "sgd-rb"),
        )
    ),
    *(
        Claim(
            f"After one pass the untuned average {name} is within 5% of the best tuned method of "
            "any rank.",
            AIM,
            _untuned(line),
            tried,
        )
        for name, line, tried in (
            ("of rank 10", "self-tuning", "more rank, and the whole covariance, below."),
            ("of rank 50", "self-tuning-50", YACHT),
            ("of full covariance", "self-tuning-full", YACHT),
        )
    ),
)
