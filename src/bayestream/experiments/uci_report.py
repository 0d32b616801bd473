"""UCI regression, looked at: tables beside the paper's, curves, boxes, error against time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayestream.evaluation import Results, drawing
from bayestream.experiments import paper, pictures
from bayestream.experiments.nouns import Rows
from bayestream.experiments.verdicts import FAR, losses, standard_error

SHOWN = ("fcekf", "fdekf", "lofi-diag-10", "lrvga-10", "sgd-rb-10", "lofi-ls-10", "self-tuning")
CAPTIONS = {
    "energy-methods": "Energy, one pass, 20 splits, as in the paper's figures “energy” and "
    "“energy-xval” (a).",
    "energy-ranks": "The same, LO-FI by rank, as in its “energy-xval” (b).",
    "energy-boxes": "Energy by rank and passes, as in its “energy-rank-passes”.",
    "error-against-time": "All sets, as in its “pareto”; timed one by one on an idle machine.",
    "energy-running-time": "As in its “energy-running-time”.",
}
RANKS = (1, 2, 5, 10, 20, 50)
FAMILIES = (
    *("lofi-diag", "lofi-sph", "lrvga", "sgd-rb", "fcekf", "fdekf", "vdekf"),
    *("lofi-ls", "self-tuning", "self-tuning-full"),
)
ROUNDING = 0.005  # the paper prints two digits


def cells(results: Results) -> Rows:
    """Every cell that has been run, beside the paper's: its ± is a standard deviation."""
    printed = {
        (f"{row['dataset']} x{row['passes']}", _line(row)): row for row in paper.table("uci_rmse")
    }
    rows: list[dict[str, Any]] = []
    for world, lines in _at_the_end(results).items():
        for line, found in lines.items():
            values = [*found.values()]
            count, error = len(values), standard_error(values)
            row = {"world": world, "line": line, "mean": float(np.mean(values))}
            row |= {"sd": error * np.sqrt(count), "se": error, "splits": count}
            theirs = printed.get((world, line), {"mean": ""})
            rows.append(row | (_beside(row, theirs) if theirs["mean"] else _ours_alone()))
    return rows


def _at_the_end(results: Results) -> dict[str, dict[str, dict[int, float]]]:
    """The last error of each split, by world and line; found in one pass over the rows."""
    rows = results.where(metric="rmse")
    columns = (rows[name].tolist() for name in ("world", "method", "trial", "value"))
    found: dict[str, dict[str, dict[int, float]]] = {}
    for world, line, split, error in zip(*columns, strict=True):
        found.setdefault(world, {}).setdefault(line, {})[split] = error  # steps are in order
    return found


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


def by_set(results: Results, passes: int) -> Rows:
    """As the paper prints it: a row a line, a column a data set; in brackets what the paper has."""
    found = {
        (row["line"], row["world"].split(" x")[0]): row
        for row in cells(results)
        if row["world"].endswith(f" x{passes}")
    }
    sets = dict.fromkeys(name for _, name in found)
    return [
        {"line": line, **{name: _entry(found.get((line, name))) for name in sets}}
        for line in sorted(dict.fromkeys(line for line, _ in found), key=family_and_rank)
    ]


def _entry(row: Mapping[str, Any] | None) -> str | None:
    if row is None:
        return None
    theirs = "" if row["paper mean"] is None else f" ({row['paper mean']:g} ± {row['paper sd']:g})"
    worse = " ✗" if row["verdict"] == "fails" else ""
    return f"{row['mean']:.3g} ± {row['sd']:.2g}{theirs}{worse}"


def seconds(results: Results) -> dict[tuple[str, str], float]:
    """What one pass over split 0 takes, by world and line."""
    rows = results.where(metric="seconds")
    columns = zip(rows["world"], rows["method"], rows["value"], strict=True)
    return {(f"{w.removesuffix(' timed')} x1", line): float(spent) for w, line, spent in columns}


def typical(results: Results) -> dict[str, tuple[float, float]]:
    """Seconds of one pass, and RMSE over that of the full filter: geometric means over the sets.

    Of the lines that have both on every set.
    """
    spent = seconds(results)
    means = {(r["world"], r["line"]): r["mean"] for r in cells(results) if r["world"][-3:] == " x1"}
    worlds = [*dict.fromkeys(world for world, line in means if line == "fcekf")]

    def mean(values: list[float]) -> float:
        return float(np.exp(np.mean(np.log(values))))

    return {
        line: (
            mean([spent[w, line] for w in worlds]),
            mean([means[w, line] / means[w, "fcekf"] for w in worlds]),
        )
        for line in dict.fromkeys(line for _, line in means)
        if worlds and all((w, line) in spent and (w, line) in means for w in worlds)
    }


def tables(results: Results) -> Mapping[str, Rows]:
    """RMSE of every cell, as the paper prints it and in a list, and seconds of one pass."""
    theirs = {
        (f"{row['dataset']} x1", _line(row)): float(row["seconds"])
        for row in paper.table("uci_seconds_one_pass")
    }
    timed = [
        {"world": world, "line": line, "seconds": spent, "paper": theirs.get((world, line))}
        for (world, line), spent in seconds(results).items()
    ]
    printed = {f"passes-{passes}": by_set(results, passes) for passes in (1, 10, 50)}
    return {**printed, "rmse": cells(results), "seconds": timed}


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
    if typical(results):
        found.append(_against_time(results, folder / "error-against-time.png"))
        found.append(_running_time(results, folder / "energy-running-time.png"))
    return found


def _boxes(errors: Results, path: Path) -> Path:
    worlds = [f"energy x{passes}" for passes in (1, 10, 50)]
    worlds = [world for world in worlds if len(errors.where(world=world))]
    figure = drawing.figure(figsize=(10, 2.6 * len(worlds)))
    for ax, world in zip(figure.subplots(len(worlds), 1, squeeze=False)[:, 0], worlds, strict=True):
        own = errors.where(world=world)
        names = [line for line in own.unique("method") if line != "vdekf"]
        names.sort(key=family_and_rank)
        values = [list(losses(errors, world, line, "rmse").values()) for line in names]
        ax.boxplot(values, tick_labels=names, widths=0.6, flierprops={"ms": 3})
        ax.set(ylabel="test RMSE", title=world.replace(" x", ", passes: "))
        ax.tick_params(axis="x", rotation=60, labelsize=7)
    return pictures.save(figure, path)


def family_and_rank(line: str) -> tuple[str, int]:
    """The method of a line, and its rank or buffer; 0 if it has none.

    >>> family_and_rank("lofi-diag-20"), family_and_rank("self-tuning"), family_and_rank("fcekf")
    (('lofi-diag', 20), ('self-tuning', 10), ('fcekf', 0))
    """
    family, _, last = line.rpartition("-")
    if last.isdigit():
        return family, int(last)
    return line, 10 if line == "self-tuning" else 0


def _families(points: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """What is of one method, by rank; methods always have the same place, and so the same look."""
    found: dict[str, dict[int, Any]] = {family: {} for family in FAMILIES}
    for line in sorted(points, key=family_and_rank):
        family, rank = family_and_rank(line)
        found[family][rank] = points[line]
    return {family: ranked for family, ranked in found.items() if ranked}


def _against_time(results: Results, path: Path) -> Path:
    """RMSE over that of the full filter, and seconds of a pass, over all sets."""
    figure = drawing.figure(figsize=(7, 4.2))
    ax = figure.subplots()
    for family, ranked in _families(typical(results)).items():
        number = FAMILIES.index(family)
        x, y = zip(*ranked.values(), strict=True)
        marker = "o" if number < 7 else "s"  # there are seven colours
        ax.plot(x, y, marker=marker, ms=4, lw=1.2, label=family, **drawing.look(number))
        for rank, place in ranked.items() if len(ranked) > 1 else ():
            ax.annotate(str(rank), place, fontsize=6, xytext=(2, 2), textcoords="offset points")
    ax.set(xscale="log", xlabel="seconds of one pass (geometric mean over the sets)")
    ax.set(ylabel="test RMSE / that of fcekf", title="One pass; numbers are ranks or buffer sizes")
    ax.legend(frameon=False, fontsize=8)
    return pictures.save(figure, path)


def _running_time(results: Results, path: Path) -> Path:
    """Seconds of one pass over energy, by rank; of what has no rank, at all of them."""
    spent = {line: s for (world, line), s in seconds(results).items() if world == "energy x1"}
    figure = drawing.figure(figsize=(7.5, 3.8))
    ax = figure.subplots()
    for family, ranked in _families(spent).items():
        number = FAMILIES.index(family)
        values = ranked if any(ranked) else {RANKS[0]: ranked[0], RANKS[-1]: ranked[0]}
        marker = "" if 0 in ranked else "o" if number < 7 else "s"
        ax.plot(
            [*values], [*values.values()], marker=marker, ms=4, label=family, **drawing.look(number)
        )
    ax.set(xscale="log", yscale="log", xlabel="rank, or examples replayed", ylabel="seconds")
    ax.set_xticks(RANKS, [str(rank) for rank in RANKS])
    ax.minorticks_off()
    ax.set_title("One pass over energy, 691 rows", fontsize=9)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return pictures.save(figure, path)
