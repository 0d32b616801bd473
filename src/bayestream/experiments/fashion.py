"""Fashion-MNIST, to be classified: at rest, permuted, split into tasks, slowly turning."""

from __future__ import annotations

from bayestream.evaluation import Results
from bayestream.experiments import fashion_probe, image_report, image_trials, lines
from bayestream.experiments.image_lines import (
    BEST,
    DOUBTING,
    OURS,
    PAPER,
    captions,
    doubt,
    first,
    ours,
    series,
)
from bayestream.experiments.nouns import Experiment, Scale, Series
from bayestream.experiments.verdicts import AIM, Claim, alike, at_most, best, doubt_helps

FEW = ("lofi-10", "fdekf", "sgd-rb-10", "sgd-rb-1")
RANKS = (2, 5, 20, 50)
SHOWN_RANKS = (1, 2, 5, 10, 20, 50)
COOLED = (
    "on training images kept for tuning, the belief's covariance times 1, .3, .1 and .03: NLPD "
    ".603, .529, .519 and .520 after 2,000 images, where NLL is .521. (NLL here is of "
    "all test images; of the 1,000 that NLPD is of, it is .02 lower still.)"
)


def _permuted(scale: Scale) -> list[Series]:
    """The methods, then other ranks of LO-FI, then what is seen of single images."""
    name, size = "fmnist-permuted", {"steps": 3_000, "every": 50}
    found = series("fashion", name, "permuted", (*PAPER, *OURS), **size)(scale)
    tuned = lines.read("fashion")["permuted"]
    if scale == "full":
        ranked = {f"lofi-{rank}": {**tuned["lofi-10"], "rank": rank} for rank in RANKS}
        found += image_trials.series(name, "permuted", ranked, scale, trials=10, **size)
    return found + fashion_probe.series(name, tuned, scale)


def _trial(line: Series, number: int) -> Results:
    probing = line.world == fashion_probe.WORLD
    return (fashion_probe if probing else image_trials).trial(line, number)


STATIONARY = Experiment(
    "fmnist-stationary",
    "Fashion-MNIST at rest",
    "2,000 images one after another, a network of 648,010 weights, tested every 100 on all 10,000 "
    "test images. NLL is of the forecast at the mean weights, NLPD takes doubt about them into "
    "account by the probit approximation, on the first 1,000 test images.",
    series(
        "fashion",
        "fmnist-stationary",
        "stationary",
        (*PAPER, "laplace-10", *OURS),
        steps=2_000,
        every=100,
        trials=100,
    ),
    image_trials.trial,
    image_report.draw("stationary", {"methods": (*PAPER, "laplace-10"), "ours": BEST}),
    image_report.tables,
    [
        first("stationary", "misclassification", "Figure “fmnist-st-clf-miscl”"),
        Claim(
            "Then comes replay SGD, then replay Adam.",
            "Figure “fmnist-st-clf-miscl”",
            best("stationary", "misclassification", "sgd-rb-10", ["adam-rb-10"], step=-1),
        ),
        Claim(
            "The diagonal EKFs and online gradient descent are the least sample efficient: replay "
            "Adam is ahead of them.",
            "Figure “fmnist-st-clf-miscl”",
            best(
                "stationary",
                "misclassification",
                "adam-rb-10",
                ["fdekf", "vdekf", "sgd-rb-1"],
                step=-1,
            ),
        ),
        first("stationary", "nll", "Figure “fmnist-st-nll”"),
        Claim(
            "LO-FI's posterior forecasts better than Laplace's and those of the other filters.",
            "Figure “fmnist-st-clf-nlpd”",
            best("stationary", "nlpd", "lofi-10", DOUBTING[1:], step=-1),
        ),
        Claim(
            "In general NLPD is below NLL: for every method that has both.",
            "Figure “fmnist-st-clf-nlpd”",
            doubt_helps("stationary", *DOUBTING),
            COOLED,
        ),
        doubt("stationary", COOLED),
        *(
            Claim(
                f"{line} errs on at most {target} of the test set after {step:,} examples.",
                AIM,
                at_most("stationary", "misclassification", line, target, step=step),
            )
            for line, step, target in (
                ("lofi-10", 500, 0.29),
                ("lofi-10", 2_000, 0.215),
                ("lofi-ls-10", 500, 0.28),
                ("lofi-ls-10", 2_000, 0.205),
            )
        ),
        *ours("stationary", "misclassification"),
    ],
    captions("figures “fmnist-st-clf-miscl”, “fmnist-st-nll” and “fmnist-st-clf-nlpd”"),
)

PERMUTED = Experiment(
    "fmnist-permuted",
    "Fashion-MNIST, permuted",
    "Ten tasks of 300 images, each with its own order of the pixels, the first as it is; tested "
    "every 50 on 500 images of the current task. Then six single images, seen through the eyes of "
    "LO-FI and of replay SGD.",
    _permuted,
    _trial,
    fashion_probe.drawn(
        image_report.draw(
            "permuted",
            {
                "errors": FEW,
                "methods": PAPER,
                "ours": BEST,
                "ranks": [f"lofi-{rank}" for rank in SHOWN_RANKS],
            },
            task=300,
            metric={"errors": "misclassification"},
        )
    ),
    image_report.tables,
    [
        first("permuted", "misclassification", "Figure “ns-pmnist-curr”"),
        first("permuted", "nll", "Figure “ns-pmnist-curr-nll”"),
        Claim(
            "More rank is better: LO-FI of rank 10 beats ranks 1, 2 and 5.",
            "Figure “ns-pmnist-curr-rank”",
            best(
                "permuted", "misclassification", "lofi-10", ["lofi-1", "lofi-2", "lofi-5"], step=-1
            ),
        ),
        Claim(
            "Gains plateau at rank 10: ranks 10, 20 and 50 err alike, within 0.02.",
            "Figure “ns-pmnist-curr-rank”",
            alike("permuted", "misclassification", ["lofi-10", "lofi-20", "lofi-50"], margin=0.02),
        ),
        *fashion_probe.CLAIMS,
        *ours("permuted", "misclassification"),
    ],
    captions(
        "figures “ns-pmnist-curr” and “ns-pmnist-curr-nll”",
        errors="Four of the methods; lines are where the pixels are permuted anew.",
        ranks="LO-FI of ranks 1 to 50, as in the paper's figure “ns-pmnist-curr-rank”.",
        **{
            "probe-lofi-10": "Six images seen by LO-FI, as in the paper's “ns-pfmnist-probe”.",
            "probe-sgd-rb-10": "The same by replay SGD, as in its “ns-pfmnist-rsgd-probe”.",
        },
    ),
)

SPLIT = Experiment(
    "fmnist-split",
    "Fashion-MNIST, split",
    "Five tasks of 300 images, each to tell two kinds of clothes apart by one yes or no; tested "
    "every 50 on 500 images of the current task.",
    series("fashion", "fmnist-split", "split", (*PAPER, *OURS), steps=1_500, every=50),
    image_trials.trial,
    image_report.draw("split", {"methods": PAPER, "ours": BEST}, task=300),
    image_report.tables,
    [
        Claim(
            "All methods are effectively indistinguishable: within 0.02 over the stream.",
            "Figure “smnist”",
            alike("split", "misclassification", PAPER, margin=0.02),
        ),
        first("split", "misclassification", AIM),
        *ours("split", "misclassification"),
    ],
    captions("figure “smnist”"),
)

ROTATED = Experiment(
    "fmnist-rotated",
    "Fashion-MNIST, slowly turning",
    "2,000 images whose angle drifts about 45 degrees by an Ornstein–Uhlenbeck process; tested "
    "every 50 on 200 test images turned as those about the current step, give or take 5 degrees.",
    series("fashion", "fmnist-rotated", "rotated", (*PAPER, *OURS), steps=2_000, every=50),
    image_trials.trial,
    image_report.draw("rotated", {"methods": PAPER, "ours": BEST}),
    image_report.tables,
    [
        first("rotated", "misclassification", "Figure “gr-clf”"),
        first("rotated", "nll", "Figure “gr-nll”"),
        Claim(
            "LO-FI of rank 10 has the least NLPD of the filters.",
            "Figure “gr-NLPD”",
            best("rotated", "nlpd", "lofi-10", ["lofi-1", "fdekf", "vdekf"], step=-1),
        ),
        doubt("rotated", f"where images do not turn, {COOLED}"),
        *ours("rotated", "misclassification"),
    ],
    captions("figures “gr-clf” and “gr-NLL-NLPD”"),
)

EXPERIMENTS = (STATIONARY, PERMUTED, SPLIT, ROTATED)
