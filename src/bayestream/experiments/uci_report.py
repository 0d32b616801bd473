"""UCI regression, looked at: tables beside the paper's, curves, boxes, error against time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayestream.evaluation import Results, drawing
from bayestream.experiments import paper, pictures
from bayestream.experiments.nouns import Rows
from bayestream.experiments.verdicts import (
    AIM,
    FAR,
    Claim,
    Judgement,
    beside_the_best,
    best,
    losses,
    standard_error,
)

SHOWN = ("fcekf", "fdekf", "lofi-diag-10", "lrvga-10", "sgd-rb-10", "lofi-ls-10", "self-tuning")
ROUNDING = 0.005  # the paper prints two digits
GOAL = 0.95  # of the cells


def cells(results: Results) -> Rows:
    """Every cell that has been run, beside the paper's: its ± is a standard deviation."""
    last = {name: results.where(metric="rmse", world=name) for name in results.unique("world")}
    printed = {
        (f"{row['dataset']} x{row['passes']}", _line(row)): row for row in paper.table("uci_rmse")
    }
    rows: list[dict[str, Any]] = []
    for world, own in last.items():
        for line in own.unique("method"):
            values = list(losses(results, world, line, "rmse").values())
            count, error = len(values), standard_error(values)
            row = {"world": world, "line": line, "mean": float(np.mean(values))}
            row |= {"sd": error * np.sqrt(count), "se": error, "splits": count}
            theirs = printed.get((world, line), {"mean": ""})
            rows.append(row | (_beside(row, theirs) if theirs["mean"] else _ours_alone()))
    return rows


def _line(row: Mapping[str, str]) -> str:
    return row["method"] if row["rank"] in ("0", "full") else f"{row['method']}-{row['rank']}"


def _ours_alone() -> dict[str, Any]:
    return {"paper mean": None, "paper sd": None, "difference": None, "verdict": "not printed"}


def _beside(row: Mapping[str, Any], theirs: Mapping[str, str]) -> dict[str, Any]:
    mean, spread = float(theirs["mean"]), float(theirs["stderr"])
    error = float(np.hypot(row["se"], max(spread, ROUNDING) / np.sqrt(20)))
    difference = (mean - row["mean"]) / error
    within = row["mean"] <= mean + spread + ROUNDING
    verdict = "beyond" if difference > FAR else "holds" if within else "fails"
    return {"paper mean": mean, "paper sd": spread, "difference": difference, "verdict": verdict}


def tables(results: Results) -> Mapping[str, Rows]:
    """RMSE of every cell, and seconds of one pass over split 0."""
    found = results.where(metric="seconds")
    theirs = {
        (row["dataset"], _line(row)): float(row["seconds"])
        for row in paper.table("uci_seconds_one_pass")
    }
    timed: list[dict[str, Any]] = []
    for world, line, spent in zip(found["world"], found["method"], found["value"], strict=True):
        data = world.removesuffix(" timed")
        row = {"world": f"{data} x1", "line": line, "seconds": float(spent)}
        timed.append(row | {"paper": theirs.get((data, line))})
    return {"rmse": cells(results), "seconds": timed}


def draw(results: Results, folder: Path) -> list[Path]:
    """Curves on energy, boxes by rank and passes, and error against time."""
    errors = results.where(metric="rmse")
    energy = errors.where(world="energy x1")
    ranks = [line for line in energy.unique("method") if line.startswith("lofi-diag")]
    found: list[Path] = []
    for name, shown in (("energy-methods", SHOWN), ("energy-ranks", ranks)):
        part = pictures.only(energy, shown)
        if len(part):
            found.append(pictures.save(pictures.curves(part), folder / f"{name}.png"))
    if len(energy):
        found.append(_boxes(errors, folder / "energy-boxes.png"))
    if len(results.where(metric="seconds", method="fcekf")):
        found.append(_against_time(results, folder / "error-against-time.png"))
    return found


def _boxes(errors: Results, path: Path) -> Path:
    worlds = [f"energy x{passes}" for passes in (1, 10, 50)]
    worlds = [world for world in worlds if len(errors.where(world=world))]
    figure = drawing.figure(figsize=(10, 2.6 * len(worlds)))
    for ax, world in zip(figure.subplots(len(worlds), 1, squeeze=False)[:, 0], worlds, strict=True):
        own = errors.where(world=world)
        names = [line for line in own.unique("method") if line != "vdekf"]
        names.sort(key=lambda line: (line.rpartition("-")[0], _rank(line)))
        values = [list(losses(errors, world, line, "rmse").values()) for line in names]
        ax.boxplot(values, tick_labels=names, widths=0.6, flierprops={"ms": 3})
        ax.set(ylabel="test RMSE", title=world.replace(" x", ", passes: "))
        ax.tick_params(axis="x", rotation=60, labelsize=7)
    return pictures.save(figure, path)


def _rank(line: str) -> int:
    last = line.rpartition("-")[2]
    return int(last) if last.isdigit() else 0


def _against_time(results: Results, path: Path) -> Path:
    """RMSE over that of the full filter, and microseconds a row, geometric means over the sets."""
    seconds = {(r["world"], r["line"]): r["seconds"] for r in tables(results)["seconds"]}
    rows = cells(results.where(metric="rmse"))
    means = {(r["world"], r["line"]): r["mean"] for r in rows if r["world"].endswith(" x1")}
    worlds = [*dict.fromkeys(world for world, line in means if line == "fcekf")]
    figure = drawing.figure(figsize=(7, 4.2))
    ax = figure.subplots()
    families: dict[str, list[tuple[float, float, str]]] = {}
    for line in dict.fromkeys(line for _, line in means):
        if all((world, line) in seconds and (world, line) in means for world in worlds):
            ratio = [means[world, line] / means[world, "fcekf"] for world in worlds]
            spent = [seconds[world, line] for world in worlds]
            family = line.rpartition("-")[0] if _rank(line) else line
            point = (float(np.exp(np.mean(np.log(spent)))), float(np.exp(np.mean(np.log(ratio)))))
            families.setdefault(family, []).append((*point, line))
    for number, (family, points) in enumerate(families.items()):
        x, y, names = zip(*sorted(points, key=lambda point: _rank(point[2])), strict=True)
        marker = "o" if number < 7 else "s"  # there are seven colours
        ax.plot(x, y, marker=marker, ms=4, lw=1.2, label=family, **drawing.look(number))
        for place, name in zip(zip(x, y, strict=True), names, strict=True):
            if _rank(name) and len(names) > 1:
                ax.annotate(
                    str(_rank(name)), place, fontsize=6, xytext=(2, 2), textcoords="offset points"
                )
    ax.set(xscale="log", xlabel="seconds of one pass (geometric mean over the sets)")
    ax.set(ylabel="test RMSE / that of fcekf", title="One pass; numbers are ranks or buffer sizes")
    ax.legend(frameon=False, fontsize=8)
    return pictures.save(figure, path)


def _within(passes: int) -> Callable[[Results], Judgement | None]:
    def judge(results: Results) -> Judgement | None:
        rows = [r for r in cells(results) if r["world"].endswith(f" x{passes}")]
        judged = [r for r in rows if r["paper mean"] is not None and r["splits"] > 1]
        if not judged:
            return None
        met = sum(row["verdict"] != "fails" for row in judged)
        share = met / len(judged)
        error = float(np.sqrt(max(share * (1 - share), 1 / len(judged) / 4) / len(judged)))
        ours = f"{met} of {len(judged)} cells ({share:.0%})"
        verdict = "holds" if share >= GOAL else "fails"
        return Judgement(f"≥ {GOAL:.0%}", ours, (share - GOAL) / error, verdict)

    return judge


def _slower(results: Results) -> Judgement | None:
    rows = {(r["world"], r["line"]): r["seconds"] for r in tables(results)["seconds"]}
    worlds = [
        world for world, line in rows if line == "lrvga-10" and (world, "lofi-diag-10") in rows
    ]
    if len(worlds) < 2:
        return None
    ratios = np.array([rows[w, "lrvga-10"] / rows[w, "lofi-diag-10"] for w in worlds])
    mean, error = float(np.mean(ratios)), standard_error(ratios)
    ours = f"{mean:.1f} ± {error:.1f} times, over {len(ratios)} sets"
    return Judgement("about 20 times", ours, (mean - 20) / error, "holds" if mean > 2 else "fails")


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
    Claim(
        "On energy LO-FI of rank 10 beats L-RVGA of rank 10.",
        "Figure “energy”",
        best("energy x1", "rmse", "lofi-diag-10", ["lrvga-10"]),
    ),
    Claim(
        "On energy L-RVGA of rank 10 beats the diagonal EKF and replay SGD.",
        "Figure “energy”",
        best("energy x1", "rmse", "lrvga-10", ["fdekf", "sgd-rb-10"]),
    ),
    Claim(
        "On energy the full-covariance EKF learns from the fewest examples.",
        "Figure “energy”",
        best("energy x1", "rmse", "fcekf", ["lofi-diag-10", "lrvga-10", "fdekf", "sgd-rb-10"]),
    ),
    Claim("L-RVGA is about 20 times slower than LO-FI.", "Figure “pareto”", _slower),
    *(
        Claim(
            f"After one pass the untuned average {name} is within 5% of the best tuned method of "
            "any rank.",
            AIM,
            _untuned(line),
        )
        for name, line in (
            ("of rank 10", "self-tuning"),
            ("of rank 50", "self-tuning-50"),
            ("of full covariance", "self-tuning-full"),
        )
    ),
)
