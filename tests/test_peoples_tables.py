"""Tables by someone who had not seen the reader, beside what a colleague would say they hold."""

import json
from pathlib import Path

import pytest

from bayestream.streams.dialects import AUTOMATIC
from bayestream.streams.files import HEAD, How, read
from bayestream.streams.habits import NO_HABITS
from bayestream.streams.tables import Unreadable, prepared
from bayestream.streams.values import finite, name_of

FOLDER = Path(__file__).with_name("tables")
EXPECTED = json.loads((FOLDER / "expected.json").read_text("utf-8"))
KINDS = {"numeric": "number", "categorical": "category", "date": "date", "left out": "left out"}
# Refused in a sentence, where a colleague might go on.
REFUSED = {
    "header_duplicates.csv": "must name each column once in its header, got 'Value' twice",
}


@pytest.mark.parametrize("name", [name for name, each in EXPECTED.items() if "refused" in each])
def test_what_is_no_table_is_refused_in_a_sentence(name):
    with pytest.raises(ValueError, match=r"\.$"):
        prepared(FOLDER / name, target=EXPECTED[name]["target"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_in_a_sentence(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        prepared(FOLDER / name, target=EXPECTED[name]["target"])


@pytest.mark.parametrize(
    "name", [name for name, each in EXPECTED.items() if "rows" in each and name not in REFUSED]
)
def test_it_is_read_as_a_colleague_would_read_it(name):
    expected = EXPECTED[name]
    _, items, plan = prepared(FOLDER / name, target=expected["target"])
    good = [item for item in items if not isinstance(item, Unreadable)]
    # Rows without a label are read, but some are not learnt from.
    unlabelled = expected["missing"].get(expected["target"], 0)
    assert len(good) in (expected["rows"], expected["rows"] - unlabelled)
    kinds = {column.name: KINDS[column.kind] for column in plan.columns}
    kinds[plan.target.name] = plan.target.task
    assert {column: kinds.get(column) for column in expected["kinds"]} == expected["kinds"]
    source = read(FOLDER / name, How(AUTOMATIC, HEAD, plan.dialects))
    rows = [row for row in source if row.values is not None]

    def cells(column):
        numeric = kinds[column] in ("number", "regression")
        habits = next(
            (each.habits for each in (*plan.columns, plan.target) if each.name == column),
            NO_HABITS,
        )
        found = [(row.values.get(column), habits.of(row.numbers)) for row in rows]
        return [finite(*cell) if numeric else name_of(cell[0]) for cell in found]

    for column, values in expected["values"].items():
        assert cells(column)[: len(values)] == pytest.approx(values)
    for column, count in expected["missing"].items():
        assert cells(column).count(None) == count
