"""Every example of the README and of the pages runs as it is written, and prints what is shown."""

import ast
import re
import shlex
from pathlib import Path

import _examples
import _hooks
import jax
import numpy as np
import pytest
import typer

import bayestream
from bayestream.cli.main import application

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if _examples.blocks(page)
]
QUICK = ("methods.md", "uncertainty.md")  # the others compile for many seconds
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def _named(page):
    return str(page.relative_to(ROOT))


def over(pages):
    return pytest.mark.parametrize("page", pages, ids=_named)


@over(PAGES)
def test_examples_name_what_the_library_has(page):
    for block in _examples.blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("bs."):
                    _resolved(ast.unparse(node))


def _resolved(chain):
    found = bayestream
    for name in chain.split(".")[1:]:
        if not name.isidentifier():
            break  # of what a call returns, nothing is known before it is made
        found = getattr(found, name)


@over([page for page in PAGES if any(_examples.commands(page))])
def test_commands_and_their_options_are_ones_that_there_are(page):
    group = typer.main.get_command(application())
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for command in _examples.commands(page):
        program, *arguments = shlex.split(command.split(" | ")[0])
        if program == "bayestream":
            group.commands[arguments[0]].make_context(arguments[0], arguments[1:])
        elif program == "make":
            assert set(arguments) <= set(targets)


@over(sorted((ROOT / "docs" / "tutorials").glob("*.md")))
def test_a_tutorial_shows_the_pictures_that_it_makes(page):
    text = page.read_text()
    shown = re.findall(r"\]\(\.\./figures/(.+?\.png)\)", text)
    assert shown == re.findall(r"savefig\(\"(.+?)\"", text)
    for picture in shown:
        assert (ROOT / "docs" / "figures" / picture).stat().st_size < 100_000


def test_every_box_and_equation_of_the_paper_is_placed_in_the_code():
    boxes, equations, _ = (ROOT / "docs" / "paper.md").read_text().split("\n## ")[1:4]
    numbers = [
        int(n) for cell in _first_cells(boxes) for n in re.findall(r"\d+", cell.split(",")[0])
    ]
    assert {*numbers} == {*range(1, 9)}
    placed = [
        n for cell in _first_cells(equations) for each in cell.split(",") for n in _span(each)
    ]
    assert placed == [*range(1, 129)]


def _first_cells(section):
    return re.findall(r"^\| (\d.*?) \|", section, flags=re.MULTILINE)


def _span(text):
    first, _, last = text.partition("–")
    return range(int(first), int(last or first) + 1)


def test_places_in_the_code_are_found_with_their_lines():
    places = re.findall(r"\[\[([\w.]+)\]\]", (ROOT / "docs" / "paper.md").read_text())
    for place in places:
        file, line = re.search(r", (\S+):(\d+)$", _hooks.on_page_markdown(f"[[{place}]]")).groups()
        code = (ROOT / "src" / "bayestream" / file).read_text().splitlines()[int(line) - 1 :]
        defined = next(each for each in code if not each.startswith(("@", "    ", ")")))
        assert defined.startswith(f"def {place.split('.')[-1]}(")


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=() if p.name in QUICK else pytest.mark.slow) for p in PAGES],
    ids=_named,
)
def test_a_page_runs_and_prints_what_it_shows(page, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))  # a reader of the README has such a table
    with jax.enable_x64(False):
        names, printed = _examples.ran(page, tmp_path, {"X": X, "y": X @ [1.0, 2.0, 3.0]})
    for block, output in printed:
        if block.shown is not None:
            _assert_alike(block.shown, output)
    CLAIMS.get(page.name, lambda names: None)(names)


def _assert_alike(shown, output):
    """The same words; numbers may differ as they do from one processor to another."""
    words = ["".join(NUMBER.sub("#", text).split()) for text in (shown, output)]
    assert words[0] == words[1]
    of_both = [[float(n.replace(",", "")) for n in NUMBER.findall(t)] for t in (shown, output)]
    np.testing.assert_allclose(*of_both, rtol=0.25, atol=0.06)


def _start(names):
    assert np.all(names["low"] < names["high"])
    np.testing.assert_allclose(names["forecast"].probabilities.sum(axis=1), 1, atol=1e-5)


def _uncertainty(names):
    assert names["outside"] > 4 * names["inside"]
    assert 0.8 < names["covered"] < 0.99


def _fleets(names):
    early = {name: errors[:20].mean() for name, errors in names["errors"].items()}
    late = {name: errors[-20:].mean() for name, errors in names["errors"].items()}
    assert early["a learner each, pooled"] < 0.7 * early["a learner each"]
    assert late["a learner each, pooled"] < 0.3 * late["one learner for all"]
    assert names["same"]
    assert len(names["sensors"]) == 30


def _methods(names):
    assert names["learner"].model.size == 3 * 16 + 16 + 16


def _regression(names):
    assert 0.85 < names["inside"][24:].mean() < 0.96


def _drift(names):
    wrong, fast = names["wrong"], names["fast"]
    for first in (1000, 2000):
        part = slice(first, first + 1000)
        assert wrong["self-tuning"][part].mean() < 0.8 * wrong["no drift"][part].mean()
    assert fast[990] < 0.5 < fast[1010]
    assert len(names["alarms"]["no drift"]) == 1


def _bandit(names):
    regret = names["results"].where(metric="regret")
    thompson, greedy = (
        regret.where(method=name)["value"].reshape(4, 3000) for name in list(names["policies"])[:2]
    )
    assert (
        np.mean(thompson[:, -1] - thompson[:, -500]) < np.mean(greedy[:, -1] - greedy[:, -500]) / 2
    )
    assert np.mean(thompson[:, 300]) > np.mean(greedy[:, 300])


def _own_network(names):
    inside, outside = (names["forecast"].covariance[at, 0, 0] for at in (80, 160))
    assert outside > 2 * inside


def _fleet(names):
    assert 0.85 < names["inside"][100:].mean() < 0.95


# What a page says of its results, beyond the numbers it shows.
CLAIMS = {
    "start.md": _start,
    "uncertainty.md": _uncertainty,
    "methods.md": _methods,
    "regression.md": _regression,
    "drift.md": _drift,
    "bandit.md": _bandit,
    "own-network.md": _own_network,
    "fleet.md": _fleet,
    "fleets.md": _fleets,
}
