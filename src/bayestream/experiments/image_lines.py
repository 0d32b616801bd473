"""What the groups of image streams have in common: their lines, and claims about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bayestream.experiments import image_trials, lines
from bayestream.experiments.nouns import Scale, Series
from bayestream.experiments.verdicts import AIM, Claim, best, doubt_helps, leads, near_the_best

PAPER = ("lofi-10", "lofi-1", "fdekf", "vdekf", "sgd-rb-10", "sgd-rb-1", "adam-rb-10", "adam-rb-1")
RIVALS = PAPER[1:]
OURS = ("lofi-ls-10", "self-tuning")
SMOKE = ("lofi-10", "sgd-rb-10", "lofi-ls-10")
BEST = ("lofi-10", "sgd-rb-10", *OURS)
DOUBTING = ("lofi-10", "lofi-1", "fdekf", "vdekf", "laplace-10")  # those that have an NLPD


def series(
    file: str,
    name: str,
    world: str,
    names: Sequence[str],
    *,
    steps: int,
    every: int,
    trials: int = 20,
) -> Callable[[Scale], list[Series]]:
    """An experiment's lines, with the settings that `file` has for its world."""

    def of(scale: Scale) -> list[Series]:
        shown = SMOKE if scale == "smoke" else names
        chosen = {line: lines.read(file)[world][line] for line in shown}
        return image_trials.series(
            name, world, chosen, scale, steps=steps, every=every, trials=trials
        )

    return of


def first(world: str, metric: str, source: str) -> Claim:
    """LO-FI of rank 10 is ahead."""
    text = f"LO-FI of rank 10 has the least {metric} of the paper's methods, over the stream."
    return Claim(text, source, best(world, metric, "lofi-10", RIVALS, step=-1))


def doubt(world: str, tried: str) -> Claim:
    """An aim on every stream, of which the paper has it on some."""
    return Claim("For LO-FI, NLPD is below NLL.", AIM, doubt_helps(world, "lofi-10"), tried)


def ours(world: str, metric: str) -> list[Claim]:
    """Of the two lines that are not the paper's."""
    return [
        Claim(
            f"With a line search, LO-FI of rank 10 has less {metric} than all the paper's methods.",
            AIM,
            leads(world, metric, "lofi-ls-10", PAPER),
        ),
        Claim(
            "The untuned average is within 5% of the best tuned method, over the stream.",
            AIM,
            near_the_best(world, metric, "self-tuning", PAPER),
        ),
    ]


def captions(figures: str, **others: str) -> dict[str, str]:
    """Of the two pictures that all have, and of others; `figures` are the paper's labels."""
    return {
        "methods": f"The paper's methods, as in its {figures}. Means and standard errors.",
        "ours": "LO-FI and replay SGD of the paper, beside the lines that are ours.",
        **others,
    }
