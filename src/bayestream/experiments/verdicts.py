"""The paper's claims, and the rule by which trials decide them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.evaluation import Results

Verdict = Literal["holds", "beyond", "open", "fails"]
FAR = 2.0  # standard errors that are not chance
AIM = "an aim of ours, not in the paper"

RULE = f"""\
Differences are in standard errors of what is compared; {FAR:g} of them are taken for real. Where
the paper prints a number, ours is compared with it, both errors counted: it <b>holds</b> within \
{FAR:g} standard errors, is <b>beyond</b> where ours is better than that, and <b>fails</b> where
worse. Where the paper says that one method is better than another, the same trials of both are
compared pair by pair: it <b>holds</b> if the difference is at least {FAR:g} standard errors in
that direction, <b>fails</b> if it is so in the other, and is <b>open</b> in between. Where a claim
here names a margin, a share or a factor, that decides. An aim
that we set ourselves <b>holds</b> if the mean reaches it, else it <b>fails</b>. What is ours alone
and better than all the paper's methods by {FAR:g} standard errors is <b>beyond</b>."""


class Judgement(NamedTuple):
    """What was found beside what was claimed."""

    paper: str
    ours: str
    difference: float  # in standard errors; positive is in favour of the claim
    verdict: Verdict


class Claim(NamedTuple):
    """A statement of the paper, or an aim of ours."""

    text: str
    source: str  # where in the paper, or AIM
    judge: Callable[[Results], Judgement | None]  # None if the trials it needs are not there
    tried: str = ""  # what was tried, to be read where it does not hold


def standard_error(values: Any) -> float:
    """Of the mean; not a number where there are fewer than two, or one is infinite.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, nan)
    """
    if len(values) < 2 or not np.isfinite(values).all():
        return float("nan")
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def number(ours: float, error: float, paper: float, paper_error: float) -> Judgement:
    """A number, less is better, beside the paper's.

    >>> number(0.30, 0.01, 0.35, 0.01).verdict, number(0.35, 0.01, 0.35, 0.01).verdict
    ('beyond', 'holds')
    """
    spread = float(np.hypot(error, paper_error))
    difference = (paper - ours) / spread if spread else 0.0
    verdict = "beyond" if difference > FAR else "holds" if difference >= -FAR else "fails"
    return Judgement(
        f"{paper:.3g} ± {paper_error:.2g}", f"{ours:.3g} ± {error:.2g}", difference, verdict
    )


def order(better: NDArray[np.float64], worse: NDArray[np.float64]) -> tuple[float, Verdict]:
    """Paired losses of two methods, of which the first is said to be better.

    >>> losses = np.array([1.0, 1.2, 0.9])
    >>> order(losses, losses + [1.0, 1.1, 0.9])[1], order(losses, losses[::-1])[1]
    ('holds', 'open')
    """
    lost = int(np.sum(~np.isfinite(worse))) - int(np.sum(~np.isfinite(better)))
    if lost:  # what diverges more often is worse
        return float("inf") * lost, "holds" if lost > 0 else "fails"
    gain = (worse - better)[np.isfinite(worse) & np.isfinite(better)]
    if len(gain) < 2:
        return float("nan"), "open"
    mean, error = float(np.mean(gain)), standard_error(gain)
    difference = mean / error if error else float(np.sign(mean)) * float("inf") if mean else 0.0
    return difference, "holds" if difference >= FAR else "fails" if difference <= -FAR else "open"


def losses(
    results: Results, world: str, line: str, metric: str, step: int | None = None
) -> dict[int, float]:
    """Each trial's loss: at a step (None is the last), or its mean over the stream for step −1."""
    rows = results.where(world=world, method=line, metric=metric)
    if not len(rows):
        return {}
    if step == -1:
        trials = rows["trial"]
        return {int(t): float(np.mean(rows["value"][trials == t])) for t in np.unique(trials)}
    rows = rows.where(step=rows["step"].max() if step is None else step)
    return dict(zip(rows["trial"].tolist(), map(float, rows["value"]), strict=True))


def nearest(
    line: str, own: Mapping[int, float], others: Mapping[str, Mapping[int, float]]
) -> Judgement | None:
    """A line's losses, a trial each, are less than those of every other; the nearest decides."""
    compared: list[tuple[float, Verdict, str, float]] = []
    for other, theirs in others.items():
        common = sorted(own.keys() & theirs.keys())
        if len(common) < 2:
            return None
        one, two = (np.array([each[trial] for trial in common]) for each in (own, theirs))
        difference, verdict = order(one, two)
        compared.append((difference, verdict, other, float(np.mean(two))))
    difference, verdict, other, mean = min(compared, key=lambda each: each[0])
    ours = f"{line} {np.mean([*own.values()]):.4g}, {other} {mean:.4g}"
    return Judgement(f"{line} best", ours, difference, verdict)


def best(
    world: str, metric: str, line: str, others: Sequence[str], *, step: int | None = None
) -> Callable[[Results], Judgement | None]:
    """`line` is better than every one of the others; the nearest of them decides."""

    def judge(results: Results) -> Judgement | None:
        own, *theirs = (losses(results, world, each, metric, step) for each in (line, *others))
        return nearest(line, own, dict(zip(others, theirs, strict=True)))

    return judge


def steadier(
    world: str, metric: str, line: str, others: Sequence[str]
) -> Callable[[Results], Judgement | None]:
    """A line's loss changes less from one test to the next than that of every other."""

    def jumps(results: Results, name: str) -> dict[int, float]:
        rows = results.where(world=world, method=name, metric=metric)
        trials = (rows.where(trial=each) for each in np.unique(rows["trial"]))
        return {
            int(rows["trial"][0]): float(np.mean(np.abs(np.diff(rows["value"])))) for rows in trials
        }

    def judge(results: Results) -> Judgement | None:
        own, *theirs = (jumps(results, each) for each in (line, *others))
        found = nearest(line, own, dict(zip(others, theirs, strict=True)))
        return found and found._replace(paper=f"{line} steadiest")

    return judge


def share(met: Sequence[bool], goal: float, what: str) -> Judgement | None:
    """Of so many cases, so many are as said; `goal` of them must be.

    >>> share([True, True, False], 0.5, "sets")
    Judgement(paper='≥ 50% of sets', ours='2 of 3', difference=nan, verdict='holds')
    """
    if not met:
        return None
    verdict: Verdict = "holds" if np.mean(met) >= goal else "fails"
    ours = f"{sum(met)} of {len(met)}"
    most = "all" if goal == 1 else f"≥ {goal:.0%}"
    return Judgement(f"{most} of {what}", ours, float("nan"), verdict)


def below(target: float, values: Sequence[float]) -> Judgement | None:
    """The mean over trials is no more than the target.

    >>> below(1.0, [0.5, 0.75])
    Judgement(paper='≤ 1', ours='0.625 ± 0.12', difference=3.0, verdict='holds')
    """
    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), standard_error(values)
    difference = (target - mean) / error if error else 0.0
    verdict: Verdict = "holds" if mean <= target else "fails"
    return Judgement(f"≤ {target:g}", f"{mean:.4g} ± {error:.2g}", difference, verdict)


def at_most(
    world: str, metric: str, line: str, target: float, *, step: int | None = None
) -> Callable[[Results], Judgement | None]:
    """A target of ours: the mean over trials is no more than this."""

    def judge(results: Results) -> Judgement | None:
        return below(target, [*losses(results, world, line, metric, step).values()])

    return judge


def doubt_helps(world: str, *lines: str) -> Callable[[Results], Judgement | None]:
    """Forecasts are better for taking doubt about the weights into account, of every line."""

    def judge(results: Results) -> Judgement | None:
        found: list[Judgement] = []
        for line in lines:
            with_doubt, without = (losses(results, world, line, m, -1) for m in ("nlpd", "nll"))
            each = nearest(f"{line}: NLPD", with_doubt, {"NLL": without})
            if each is None:
                return None
            found.append(each._replace(paper="NLPD below NLL"))
        return min(found, key=lambda each: each.difference)

    return judge


def beside_the_best(
    results: Results, world: str, metric: str, line: str, others: Sequence[str], step: int | None
) -> tuple[float, str, float, int] | None:
    """The mean of a line, the best of the others, its mean, and how many trials these means have.

    They are the trials that the line has; an other that lacks one of them is left out.
    """
    trials = losses(results, world, line, metric, step).keys()
    means = {
        name: float(np.mean([found[trial] for trial in trials]))
        for name in (line, *others)
        if trials and trials <= (found := losses(results, world, name, metric, step)).keys()
    }
    if len(means) < 2:
        return None
    own = means.pop(line)
    rival = min(means, key=lambda name: means[name])
    return own, rival, means[rival], len(trials)


def near_the_best(
    world: str, metric: str, line: str, others: Sequence[str], *, factor: float = 1.05
) -> Callable[[Results], Judgement | None]:
    """A target of ours: the mean loss is at most `factor` times that of the best of the others."""

    def judge(results: Results) -> Judgement | None:
        found = beside_the_best(results, world, metric, line, others, step=-1)
        if found is None:
            return None
        own, rival, least, trials = found
        ours = f"{own:.4g}, {rival} {least:.4g}: {own / least:.2f} times"
        ours += f", {trials} trials" if trials > 1 else ", one trial"
        verdict: Verdict = "holds" if own / least <= factor else "fails"
        return Judgement(f"≤ {factor:g} × the tuned best", ours, float("nan"), verdict)

    return judge


def alike(
    world: str, metric: str, lines: Sequence[str], *, margin: float
) -> Callable[[Results], Judgement | None]:
    """The means of all lines, over the stream, lie within `margin` of each other."""

    def judge(results: Results) -> Judgement | None:
        found = [losses(results, world, line, metric, -1) for line in lines]
        if any(len(each) < 2 for each in found):
            return None
        means = [float(np.mean(list(each.values()))) for each in found]
        low, high = int(np.argmin(means)), int(np.argmax(means))
        ours = f"{lines[low]} {means[low]:.4g} to {lines[high]} {means[high]:.4g}"
        verdict: Verdict = "holds" if means[high] - means[low] <= margin else "fails"
        return Judgement(f"within {margin:g}", ours, float("nan"), verdict)

    return judge


def leads(
    world: str, metric: str, line: str, others: Sequence[str]
) -> Callable[[Results], Judgement | None]:
    """What is ours alone is better than all of the others, over the stream."""
    ahead = best(world, metric, line, others, step=-1)

    def judge(results: Results) -> Judgement | None:
        found = ahead(results)
        if found is None:
            return None
        verdict: Verdict = "beyond" if found.verdict == "holds" else found.verdict
        return found._replace(paper="not in the paper", verdict=verdict)

    return judge
