"""`bayestream tune`: look for hyper-parameters, resumably, never on test data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayestream import likelihoods
from bayestream.checks import check_choice
from bayestream.cli import learners, sources
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.outputs import Json, Screen, written
from bayestream.cli.reading import AS_IT_IS, Reading, reads_tables
from bayestream.evaluation import plots
from bayestream.networks import models
from bayestream.streams.tables import stacked
from bayestream.tuning import tune as tuning
from bayestream.types import Stream


@reads_tables
def tune(
    data: sources.Data,
    target: sources.Target = "",
    task: sources.TaskName = "",
    method: learners.Method = None,
    rank: learners.Rank = None,
    hidden: learners.Hidden = "50",
    objective: Annotated[
        str | None,
        typer.Option(
            help="validation (a tenth held out; the default for data sets without an order) or "
            "prequential (each row before it is learnt from; the default for the rest)."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="How many, with those done before.")] = 30,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="An option not to be searched: decay=1.")
    ] = None,
    limit: sources.Limit = None,
    ray: sources.Ray = None,
    seed: Annotated[int, typer.Option(help="Of the search and of the initial weights.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for trials and result.")] = Path("out/tune"),
    as_json: Json = False,
    reading: Reading = AS_IT_IS,
) -> None:
    """Search for the hyper-parameters with the least negative log predictive density.

    Only training data is looked at. Trials are kept in OUT/trials.db: a search that was stopped
    goes on where it was. Prints the best values as Python and writes them to OUT/METHOD.toml, for
    `bayestream run --config`: never worse than the defaults; and a picture of what
    mattered to OUT/METHOD.png. Ctrl-C, or SIGTERM, ends the search with the best so far and exit
    code 130; a second one ends it at once.

    **Examples:**

    `bayestream tune --data uci/energy --method lofi --rank 10 --trials 30`

    `bayestream tune --data my.csv --target price --method lofi --set decay=1.0`

    `bayestream tune --data my.csv --target price --method lofi --ray 10.0.0.1:6379`
    """
    source = sources.opened(data, target=target, task=task, reading=reading, limit=limit)
    console = Screen(as_json)
    rows, bad = source.read(console)
    stream = stacked(rows, source.task, source.inputs)
    chosen = learners.settings(method, rank=rank, given=given or ())
    sizes = learners.layers(source, hidden)
    baseline = learners.learner(source, sizes, chosen)
    console.lines([learners.sentence(source, chosen.method, baseline)])
    aim = objective or ("validation" if source.at_rest else "prequential")
    check_choice("--objective", aim, {"validation": None, "prequential": None})
    found = tuning.tune(
        chosen.method,
        models.mlp(sizes),
        likelihoods.gaussian if source.task == "regression" else likelihoods.categorical(),
        objective_for(aim, stream, seed),
        fixed=learners.robust(source, chosen).options,
        baseline=baseline,
        trials=trials,
        seed=seed,
        storage=out / "trials.db",
        study=f"{data} {target} {chosen.method} {hidden} {aim} {limit} {given or ''}",
        progress=True,
        stop=lambda: INTERRUPTS.requested,
        ray=ray,
    )
    if INTERRUPTS.requested and found.trials < trials:
        console.print(
            f"interrupted after {found.trials} trials; the same command goes on from there"
        )
    before = "" if found.baseline is None else f", with the defaults {found.baseline:.4f}"
    console.print(
        f"{aim} negative log predictive density: {found.value:.4f}{before}; {found.trials} trials"
    )
    if found.refused:
        console.print(f"{found.refused} trials were given up: most of their updates were refused")
    if found.baseline is not None and found.baseline <= found.value:
        console.print("the defaults are better than all of them, and are what is written")
        found = found._replace(fixed=chosen.options, best={}, value=found.baseline)
    console.lines(["", found.python(), "", found.toml()])
    path = out / f"{chosen.method}.toml"
    files = [
        *written(path, lambda partial: partial.write_text(found.toml(), "utf-8")),
        *written(
            path.with_suffix(".png"),
            lambda partial: plots.search(found.history).savefig(partial, dpi=130),
        ),
    ]
    console.print("wrote", *map(str, files), markup=False)
    summary = learners.summary(source, chosen.method, baseline)
    summary |= {"objective": aim, "nlpd": found.value, "defaults_nlpd": found.baseline}
    options = {**found.fixed, **found.best}
    counts = {
        "rows": len(stream),
        "skipped": len(bad),
        "trials": found.trials,
        "refused": found.refused,
    }
    console.report({**summary, "options": options}, counts, files)


def objective_for(aim: str, stream: Stream, seed: int) -> tuning.Objective:
    """Each row before it is learnt from, or a tenth held out, after the rest in a random order."""
    if aim == "prequential":
        return tuning.prequential(stream, seed=seed)
    mixed = stream.shuffle(seed)
    cut = len(mixed) - max(1, len(mixed) // 10)
    held_out = mixed.select(range(cut, len(mixed)))
    return tuning.validation(mixed.take(cut), held_out, seed=seed)
