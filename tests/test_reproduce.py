"""The paper's experiments: what is finished is kept, and claims are judged by the stated rule."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bayestream import estimators
from bayestream.cli.main import application
from bayestream.evaluation import Results
from bayestream.experiments import (
    fashion_probe,
    images,
    lines,
    lrvga_kl,
    registry,
    report,
    store,
    uci_claims,
    uci_report,
    verdicts,
    work,
)
from bayestream.experiments.nouns import SCALES, Experiment, Series
from bayestream.experiments.verdicts import Claim, best
from bayestream.types import Example, Stream


def rows(series, trial, value):
    return Results.of(
        method=series.line,
        metric="rmse",
        summary="held out",
        trial=trial,
        step=[1, 2],
        task=0,
        value=[2 * value, value],
    )


def toy(trials=3, **settings):
    return Series("toy", "a world", "lofi 1", {"rank": 1, **settings}, trials, 0.1)


def experiment(trial, trials=3):
    return Experiment(
        "toy",
        "Toy",
        "About.",
        lambda scale: [toy(trials)],
        trial,
        lambda results, folder: [],
        lambda results: {"losses": [{"line": "lofi 1", "mean": 1.0}]},
        [Claim("One.", "here", best("a world", "rmse", "lofi 1", ["lofi 1"]))],
    )


def test_a_killed_run_goes_on_where_it_was(tmp_path, monkeypatch):
    ran = []

    def trial(series, number):
        if number == 2 and len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(number)
        return rows(series, number, float(number))

    monkeypatch.setitem(registry.EXPERIMENTS, "toy", experiment(trial))
    for attempt in range(2):
        todo = work.jobs([registry.EXPERIMENTS["toy"]], "full", tmp_path)
        assert [job.trial for job in todo] == ([0, 1, 2] if attempt == 0 else [2])
        try:
            for job, found in work.results(todo, 1):
                store.add(tmp_path, job.series, job.trial, found)
        except KeyboardInterrupt:
            ran.append(-1)
    assert ran == [0, 1, -1, 2]
    found = work.found(registry.EXPERIMENTS["toy"], "full", tmp_path)
    assert found.where(metric="rmse", step=2)["value"].tolist() == [0.0, 1.0, 2.0]
    assert found.unique("world") == ["a world"]


def test_trials_of_other_settings_are_not_mistaken_for_these(tmp_path):
    store.add(tmp_path, toy(), 0, rows(toy(), 0, 1.0))
    assert store.finished(tmp_path, toy()) == {0}
    assert store.finished(tmp_path, toy(rank=2)) == set()


def test_a_file_that_was_cut_off_while_written_does_not_count(tmp_path):
    store.add(tmp_path, toy(), 0, rows(toy(), 0, 1.0))
    whole = store.path(tmp_path, toy())
    whole.with_suffix(".partial").write_text("# {}\ntrial,metric")
    store.add(tmp_path, toy(), 1, rows(toy(), 1, 3.0))
    assert store.load(tmp_path, toy()).where(step=2)["value"].tolist() == [1.0, 3.0]


def test_losses_that_are_infinite_survive_being_kept(tmp_path):
    store.add(tmp_path, toy(), 0, rows(toy(), 0, np.inf))
    assert np.isinf(store.load(tmp_path, toy())["value"].astype(float)).all()


def test_numbers_hold_within_two_standard_errors():
    judged = [verdicts.number(ours, 0.03, 1.0, 0.04).verdict for ours in (0.85, 0.95, 1.05, 1.15)]
    assert judged == ["beyond", "holds", "holds", "fails"]


def test_orders_are_judged_pair_by_pair():
    noise = np.array([0.0, 5.0, -3.0, 1.0])
    assert verdicts.order(noise, noise + np.array([1.0, 1.1, 0.9, 1.0]))[1] == "holds"
    assert verdicts.order(noise + np.array([1.0, 1.1, 0.9, 1.0]), noise)[1] == "fails"
    assert verdicts.order(noise, noise[::-1])[1] == "open"
    assert verdicts.order(noise, noise + np.array([1.0, np.inf, 1.0, 1.0]))[1] == "holds"
    assert verdicts.order(noise + np.array([1.0, np.inf, 1.0, 1.0]), noise)[1] == "fails"


def test_the_nearest_rival_decides_who_is_best():
    def line(name, values):
        return Results.of(
            world="w",
            method=name,
            metric="rmse",
            summary="s",
            trial=range(3),
            step=1,
            task=0,
            value=values,
        )

    results = Results.joined(
        [line("a", [1.0, 1.1, 1.2]), line("b", [1.01, 1.08, 1.21]), line("c", [9.0, 9.1, 9.2])]
    )
    assert best("w", "rmse", "a", ["c"])(results).verdict == "holds"
    assert best("w", "rmse", "a", ["b", "c"])(results).verdict == "open"
    assert best("w", "rmse", "a", ["d"])(results) is None


def test_uci_cells_are_judged_by_the_papers_standard_deviation():
    def cell(value):
        results = Results.of(
            world="energy x1", method="lofi-diag-10", metric="rmse", summary="s", trial=range(2),
            step=1, task=0, value=[value - 0.01, value + 0.01],
        )  # fmt: skip
        return uci_report.cells(results)[0]["verdict"]

    # The paper: 2.53 ± 0.26.
    assert [cell(value) for value in (2.0, 2.5, 2.78, 2.9)] == ["beyond", "holds", "holds", "fails"]


def test_an_untuned_average_is_held_against_the_best_tuned_line_on_its_own_splits():
    def part(world, line, values):
        same = {"metric": "rmse", "summary": "s", "step": 1, "task": 0}
        return Results.of(world=world, method=line, trial=range(len(values)), value=values, **same)

    parts = [
        part("yacht x1", "self-tuning", [1.0, 1.2]),
        part("yacht x1", "self-tuning-50", [0.1, 0.1]),  # is not tuned either
        part("yacht x1", "fcekf", [1.0, 1.0, 0.1]),  # the third split does not count
        part("yacht x1", "fdekf", [0.5]),  # lacks a split
        part("energy x1", "self-tuning", [1.0]),
        part("energy x1", "fcekf", [1.0]),
        part("energy x10", "self-tuning", [9.0]),
        part("energy x10", "fcekf", [1.0]),
    ]
    judge = uci_claims._untuned("self-tuning")
    found = judge(Results.joined(parts))
    assert (found.ours, found.verdict) == ("1 of 2: yacht 1.10, energy 1.00", "fails")
    assert judge(Results.joined(parts[4:])).verdict == "holds"
    assert judge(Results.joined(parts[1:4])) is None


def test_errors_are_drawn_against_time_of_lines_that_have_both_on_every_set(tmp_path):
    def part(world, line, metric):
        same = {"summary": "s", "trial": 0, "step": 1, "task": 0, "value": 1.0}
        return Results.of(world=world, method=line, metric=metric, **same)

    have = [("energy", "fcekf"), ("energy", "lofi-diag-1"), ("yacht", "fcekf")]
    parts = [part(f"{data} x1", line, "rmse") for data, line in have]
    timed = [*have, ("yacht", "lofi-diag-1")]
    parts += [part(f"{data} timed", line, "seconds") for data, line in timed]
    drawn = uci_report.draw(Results.joined(parts), tmp_path)
    assert tmp_path / "error-against-time.png" in drawn


def uci_rows(world, line, metric, values):
    same = {"summary": "s", "step": 1, "task": 0}
    return Results.of(
        world=world, method=line, metric=metric, trial=range(len(values)), value=values, **same
    )


def test_what_is_quicker_with_less_error_dominates():
    points = {"fcekf": (9.0, 1.0), "lofi-diag-1": (1.0, 3.0), "lofi-diag-50": (5.0, 1.5)}
    points |= {"lrvga-1": (5.0, 2.0), "lrvga-50": (4.0, 1.6)}
    parts = [
        uci_rows(f"energy {world}", line, metric, [place[number]])
        for line, place in points.items()
        for number, (world, metric) in enumerate((("timed", "seconds"), ("x1", "rmse")))
    ]
    found = uci_claims._dominates("lofi-diag", "lrvga")(Results.joined(parts))
    assert (found.ours, found.verdict) == ("1 of 2", "fails")


def test_more_helps_where_all_cells_that_were_run_say_so():
    parts = [
        uci_rows("yacht x1", "lofi-diag-1", "rmse", [2.0, 2.0]),
        uci_rows("yacht x1", "lofi-diag-50", "rmse", [1.0, 1.0]),
        uci_rows("yacht x10", "lofi-diag-50", "rmse", [1.5, 1.5]),
    ]
    results = Results.joined(parts)
    assert uci_claims._more_helps("rank 1", "rank 50")(results).ours == "1 of 1"
    assert uci_claims._more_helps("x1", "x10")(results).verdict == "fails"
    assert uci_claims._more_helps("x10", "x50")(results) is None


def test_tables_are_printed_as_the_paper_has_them():
    results = Results.joined(
        [
            uci_rows("energy x1", "lofi-diag-10", "rmse", [2.9, 3.1]),
            uci_rows("yacht x1", "self-tuning", "rmse", [1.0, 1.2]),
        ]
    )
    first, second = uci_report.by_set(results, 1)
    assert first == {"line": "lofi-diag-10", "energy": "3 ± 0.14 (2.53 ± 0.26) ✗", "yacht": None}
    assert second == {"line": "self-tuning", "energy": None, "yacht": "1.1 ± 0.14"}


def test_what_changes_less_from_test_to_test_is_steadier():
    def line(name, values):
        same = {"world": "w", "metric": "nll", "summary": "s", "task": 0}
        trials = [
            Results.of(method=name, trial=t, step=[1, 2, 3], value=np.array(values) + t, **same)
            for t in range(2)
        ]
        return Results.joined(trials)

    results = Results.joined([line("calm", [5.0, 5.1, 5.0]), line("noisy", [1.0, 2.0, 1.0])])
    assert verdicts.steadier("w", "nll", "calm", ["noisy"])(results).verdict == "holds"
    assert verdicts.steadier("w", "nll", "noisy", ["calm"])(results).verdict == "fails"


def test_even_forecasts_are_not_sure_and_certain_ones_are():
    even, certain = np.full(10, 0.1), np.eye(10)[0]
    # Two snapshots of two tasks and an image of another world: certain of what has been seen.
    chances = [[certain, even, certain], [certain, certain, certain]]
    steps = [fashion_probe.EVERY, images.TASK + fashion_probe.EVERY]
    parts = [
        Results.of(
            world=fashion_probe.WORLD, method="lofi-10", metric=[f"class {k}" for k in range(10)],
            summary=f"image {image}", trial=0, step=step, task=0, value=chances[place][image],
        )
        for place, step in enumerate(steps) for image in range(3)
    ]  # fmt: skip
    found = [
        fashion_probe._sureness(Results.joined(parts), "lofi-10", alien=alien)[0]
        for alien in (False, True)
    ]
    np.testing.assert_allclose(found, [0.0, 1.0], atol=1e-12)


def test_captions_are_of_pictures_in_the_published_report():
    folder = Path(__file__).parent.parent / "docs" / "reproduction" / "figures"
    for known in registry.EXPERIMENTS.values():
        drawn = {path.stem for path in (folder / known.id).glob("*.png")}
        assert drawn == set(known.captions), known.id


@pytest.mark.parametrize("scale", SCALES)
def test_every_series_names_a_method_that_there_is(scale):
    known = {*estimators.REGISTRY, "self_tuning"}
    for known_experiment in registry.EXPERIMENTS.values():
        series = known_experiment.series(scale)
        assert series, known_experiment.id
        assert len({each.name for each in series}) == len(series)
        for each in series:
            line = each.settings.get("line", each.settings)
            assert line["method"] in known
            assert each.trials > 0
            assert each.seconds > 0


def test_smaller_scales_are_parts_of_the_full_one():
    for known_experiment in registry.EXPERIMENTS.values():
        full = {each.name for each in known_experiment.series("full")}
        assert {each.name for each in known_experiment.series("quick")} <= full


def test_the_papers_filters_take_the_full_step():
    for name in ("fashion", "rotation"):
        for table in lines.read(name).values():
            searching = {line for line, options in table.items() if options.get("line_search")}
            assert searching == {"lofi-ls-10"}


def test_the_report_counts_verdicts_and_stands_alone(tmp_path, monkeypatch):
    toys = experiment(lambda series, number: rows(series, number, 1.0))
    monkeypatch.setitem(registry.EXPERIMENTS, "toy", toys)
    for job, found in work.results(work.jobs([toys], "full", tmp_path), 1):
        store.add(tmp_path, job.series, job.trial, found)
    page = report.write([toys], "full", tmp_path).read_text()
    assert "Of its claims, 1 were judged" in page
    assert "beside them, 0:" in page
    assert "Trials a line: 3." in page
    assert '<td class="n open">1<td class="n fails"><td class="n">3<td class="n">0.0' in page
    assert 'class="verdict open"' in page
    assert "<script" not in page
    assert 'src="http' not in page
    assert (tmp_path / "tables" / "toy-losses.csv").read_text() == "line,mean\nlofi 1,1\n"


def test_what_was_tried_is_read_where_a_claim_fails():
    claim = Claim("One is less.", "here", best("w", "rmse", "a", ["b"]), "this & that.")
    shown = [
        report._claim(claim, verdicts.Judgement("a best", "a 2, b 1", 0.0, verdict))
        for verdict in ("fails", "holds")
    ]
    assert ["Tried: this &amp; that." in text for text in shown] == [True, False]


def test_what_there_is_not_is_refused_in_a_sentence(tmp_path):
    result = CliRunner().invoke(application(), ["reproduce", "usi", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "ID must be one of" in result.output
    assert "Did you mean 'uci'?" in result.output
    result = CliRunner().invoke(application(), ["reproduce", "uci", "--scale", "huge"])
    assert "--scale must be one of full, quick, smoke" in result.output


def test_a_dry_run_says_how_long_it_takes_and_does_nothing(tmp_path):
    options = ["--scale", "full", "--dry-run", "--out", str(tmp_path)]
    result = CliRunner().invoke(application(), ["reproduce", "uci", *options])
    assert result.exit_code == 0, result.output
    assert "time left" in result.output
    assert not list(tmp_path.iterdir())


def test_one_seed_is_one_result_in_whatever_order(monkeypatch):
    monkeypatch.setattr(lrvga_kl, "INPUTS", 4)
    monkeypatch.setattr(lrvga_kl, "COUNT", 20)
    series = Series("lrvga-kl", "linear", "lofi-2", {"method": "lofi", "rank": 2}, 2, 1.0)
    todo = [work.Job(series, trial) for trial in (0, 1)]
    once, again = (
        {job.trial: found.where(metric="kl")["value"].tolist() for job, found in results}
        for results in (work.results(todo, 1), work.results(todo[::-1], 1))
    )
    assert once == again
    assert once[0] != once[1]


@pytest.fixture
def few_images(monkeypatch):
    """Images that hold their own number, of ten classes in turn."""

    def stream(part="train", *, flat=True):
        count = 70 if part == "train" else 40
        x = np.tile(np.arange(count)[:, None] + np.linspace(0, 0.5, 16), 1).astype(np.float32)
        return Stream(Example(x + (1000 if part == "test" else 0), np.arange(count) % 10))

    monkeypatch.setattr(images.streams, "fashion_mnist", stream)
    monkeypatch.setattr(images, "VALIDATION", 10)
    monkeypatch.setattr(images, "TASK", 6)
    monkeypatch.setattr(images, "TEST", 4)
    images._training.cache_clear()
    images._test.cache_clear()
    yield
    images._training.cache_clear()
    images._test.cache_clear()


def test_streams_hold_neither_validation_nor_test_images(few_images):
    train, tests = images.stationary(0, 30)
    assert np.all((train.examples.x >= 10) & (train.examples.x < 1000))
    assert np.all(tests(1).x >= 1000)
    again, other = (images.stationary(trial, 30).train.examples.y for trial in (0, 1))
    np.testing.assert_array_equal(again, train.examples.y)
    assert np.any(other != again)


def test_tests_are_permuted_as_the_current_task_is(few_images):
    train, tests = images.permuted(3, 12)

    def order(x):
        return np.argsort(x, axis=-1)

    seen = np.asarray(train.examples.x[np.arange(12)])
    first, second = tests(6), tests(7)
    np.testing.assert_array_equal(order(np.asarray(first.x)), order(seen[:4]))
    np.testing.assert_array_equal(order(np.asarray(second.x)), order(seen[6:10]))
    assert np.any(order(seen[0]) != order(seen[6]))


def test_a_batch_is_of_one_series_and_half_a_minute():
    short, long = (Series("uci", "energy x1", f"{s} s", {}, 3, s) for s in (12.0, 40.0))
    todo = [work.Job(each, trial) for each in (short, long) for trial in range(3)]
    assert work.batches(todo) == [todo[:2], todo[2:3], todo[3:4], todo[4:5], todo[5:]]


@pytest.mark.slow
def test_one_seed_is_one_result_in_whatever_process():
    chosen = [each for each in registry.EXPERIMENTS["uci"].series("smoke") if "yacht" in each.world]
    todo = [work.Job(each, trial) for each in chosen[:2] for trial in (0, 1)]
    once, again = (
        {job.series.name + str(job.trial): found for job, found in work.results(order, 2)}
        for order in (todo, todo[::-1])
    )
    assert once.keys() == again.keys()
    for name, found in once.items():
        one, two = (each.where(metric="rmse")["value"] for each in (found, again[name]))
        np.testing.assert_array_equal(one, two)


def _die(*_):
    os._exit(1)


def test_a_process_that_dies_is_told_of():
    todo = [work.Job(Series("none", "w", "l", {}, 2, 60.0), trial) for trial in (0, 1)]
    with pytest.raises(RuntimeError, match="a process that ran trials has died"):
        list(work.results(todo, 2, _die))


@pytest.mark.slow
def test_the_smoke_run_of_everything_takes_minutes_and_makes_a_report(tmp_path):
    options = ["--scale", "smoke", "--jobs", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(application(), ["reproduce", "all", *options])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report.html").read_text()
    for name in registry.EXPERIMENTS:
        assert f'id="{name}"' in page
