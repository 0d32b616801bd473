"""The pages' examples run as they are written."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGES = Path(__file__).parents[1] / "docs"


def ran(page):
    """The names after all code of a page has run, block after block."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), flags=re.DOTALL):
        exec(block, names)
    return names


@pytest.mark.slow
def test_the_first_five_minutes_run_as_they_are_written():
    names = ran("start.md")
    assert np.all(names["low"] < names["high"])
    np.testing.assert_allclose(names["forecast"].probabilities.sum(axis=1), 1, atol=1e-5)


def test_doubt_is_larger_where_nothing_was_seen_and_intervals_cover_what_they_say():
    names = ran("uncertainty.md")
    assert names["outside"] > 4 * names["inside"]
    assert 0.8 < names["covered"] < 0.99


def test_a_pooled_fleet_learns_late_sensors_soonest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ran("fleets.md")
    early = {name: errors[:20].mean() for name, errors in names["errors"].items()}
    late = {name: errors[-20:].mean() for name, errors in names["errors"].items()}
    assert early["a learner each, pooled"] < 0.7 * early["a learner each"]
    assert late["a learner each, pooled"] < 0.3 * late["one learner for all"]
    assert names["same"]
    assert len(names["sensors"]) == 30
    assert (tmp_path / "fleets.png").exists()


def test_a_network_of_ones_own_learns_as_the_page_says():
    names = ran("methods.md")
    assert names["learner"].model.size == 3 * 16 + 16 + 16
