"""River's own streams in river's own evaluation: our score and time an example beside its models'.

`python benchmarks/facades.py`; with `--latency`, how long one call takes at 5,000 weights.
"""

import argparse
import statistics
import time
import warnings

import jax
import numpy as np
from river import (
    compose,
    datasets,
    evaluate,
    forest,
    linear_model,
    metrics,
    multiclass,
    preprocessing,
    tree,
)

from bayestream.facades.river import BayesNetClassifier, BayesNetRegressor


def scaled(model):
    """The model, of standardised features."""
    return compose.Pipeline(preprocessing.StandardScaler(), model)


def classifiers(several):
    """Ours and river's, for two classes or several."""
    logistic = linear_model.LogisticRegression()
    return {
        "bayestream": BayesNetClassifier(),
        "logistic": scaled(multiclass.OneVsRestClassifier(logistic) if several else logistic),
        "Hoeffding tree": tree.HoeffdingTreeClassifier(),
        "adaptive tree": tree.HoeffdingAdaptiveTreeClassifier(seed=0),
        "fast tree": tree.ExtremelyFastDecisionTreeClassifier(),
        "forest of trees": forest.ARFClassifier(seed=0),
    }


def regressors():
    """Ours and river's."""
    return {
        "bayestream": BayesNetRegressor(),
        "linear": scaled(linear_model.LinearRegression()),
        "Bayesian linear": scaled(linear_model.BayesianLinearRegression()),
        "Hoeffding tree": scaled(tree.HoeffdingTreeRegressor()),
        "adaptive tree": scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=0)),
        "stochastic tree": scaled(tree.SGTRegressor()),
        "forest of trees": scaled(forest.ARFRegressor(seed=0)),
    }


STREAMS = {
    "Phishing": (datasets.Phishing, lambda: classifiers(False), metrics.Accuracy),
    "Bananas": (datasets.Bananas, lambda: classifiers(False), metrics.Accuracy),
    "ImageSegments": (datasets.ImageSegments, lambda: classifiers(True), metrics.Accuracy),
    "TrumpApproval": (datasets.TrumpApproval, regressors, metrics.MAE),
}


def streams() -> None:
    """A table for each stream."""
    for name, (stream, models, metric) in STREAMS.items():
        print(f"\n{name:16s} {metric.__name__:>10s}   first pass, s   µs an example")
        for model_name, model in models().items():
            count = sum(1 for _ in stream())
            times = []
            for _ in range(2):  # the second finds its programs compiled
                fresh = model.clone()
                begin = time.perf_counter()
                score = evaluate.progressive_val_score(stream(), fresh, metric())
                times.append(time.perf_counter() - begin)
            warm = 1e6 * times[1] / count
            print(f"  {model_name:14s} {score.get():10.4f} {times[0]:15.1f} {warm:15.0f}")


def latency(features: int, hidden: int, method: str | None) -> None:
    """The median time of a call, warm."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(1200, features))
    rows = [{f"x{i}": float(v) for i, v in enumerate(x)} for x in xs]
    model = BayesNetRegressor(hidden=hidden, method=method)
    predicting, learning = [], []
    for row, y in zip(rows, xs @ rng.normal(size=features), strict=True):
        begin = time.perf_counter()
        model.predict_one(row)
        middle = time.perf_counter()
        model.learn_one(row, float(y))
        jax.block_until_ready(model._online.state)
        predicting.append(middle - begin)
        learning.append(time.perf_counter() - middle)
    size = model._online.compiled.learner.model.size
    found = [1e6 * statistics.median(each[200:]) for each in (predicting, learning)]
    label = method or "self-tuning"
    print(
        f"{label:12s} {features:3d} features, {size:6d} weights: "
        f"predict_one {found[0]:6.0f} µs, learn_one {found[1]:6.0f} µs (medians)"
    )


def main() -> None:
    """Streams, or the time of a call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.latency:
        latency(10, 400, "lofi")
        latency(20, 220, "lofi")
        latency(96, 50, "lofi")
        latency(10, 68, None)
        latency(15, 50, None)
    else:
        streams()


if __name__ == "__main__":
    main()
