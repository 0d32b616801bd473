"""The user's own rows: read, encoded without peeking, refused with a place and a reason."""

import datetime
import gzip
import io
import itertools
import json
import sys
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayestream as bs
from bayestream.streams import datasets
from bayestream.streams.detection import Like
from bayestream.streams.dialects import Format, sniff
from bayestream.streams.files import count, read
from bayestream.streams.values import NumberStyle

CSV = """size,colour,when,y
1.5,red,2024-01-01,10
2.5,blue,2024-01-02,12
,red,2024-01-03,11
4.5,green
oops,red,2024-01-05,14
5.5,,2024-01-06,
"""
OPTIONS = {"target": "y", "task": "regression", "slots": 4}


@pytest.fixture
def csv_file(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text(CSV)
    return path


def test_broken_rows_are_reported_with_their_line_and_reason(csv_file):
    table = bs.streams.table(csv_file, on_bad="skip", **OPTIONS)
    assert [(s.place, s.reason) for s in table.skipped] == [
        ("my.csv line 5", "has 2 fields where the header has 4"),
    ]
    with pytest.raises(ValueError, match=r"my\.csv line 5: has 2 fields where the header has 4\."):
        bs.streams.table(csv_file, **OPTIONS)


def test_a_cell_that_is_no_number_counts_as_missing_and_is_reported(csv_file):
    table = bs.streams.table(csv_file, on_bad="skip", **OPTIONS)
    assert table.columns.numeric == ("size",)
    np.testing.assert_array_equal(table.stream.examples.x[[2, 3], 0], 0)
    said = "column size: 1 cell counts as missing; 'oops' is not a number (my.csv line 6)"
    assert table.said[-1] == said


def test_columns_are_told_apart_by_their_first_values(csv_file):
    table = bs.streams.table(csv_file, on_bad="skip", **OPTIONS)
    assert table.columns == bs.streams.Columns(("size",), ("colour",), ("when",))
    forced = bs.streams.table(csv_file, on_bad="skip", categorical=["when"], **OPTIONS)
    assert forced.columns == bs.streams.Columns(("size",), ("colour", "when"))
    fewer = bs.streams.table(csv_file, on_bad="skip", ignore=["when", "colour"], **OPTIONS)
    assert fewer.columns == bs.streams.Columns(("size",), ())


def test_a_missing_input_is_the_mean_and_a_missing_label_is_nan(csv_file):
    table = bs.streams.table(csv_file, on_bad="skip", **OPTIONS)
    x, y = table.stream.examples.x, table.stream.examples.y
    assert x[2, 0] == 0
    assert np.isnan(y[:, 0]).tolist() == [False, False, False, False, True]
    assert table.rows[4].target is None
    colours = x[:, 8:]  # after a number and a date's seven
    assert colours[:4].argmax(axis=1).tolist() == [0, 1, 0, 0]
    np.testing.assert_array_equal(colours[4], 0)  # missing


def test_categories_without_a_free_slot_share_the_last_and_are_counted():
    rows = [{"c": name, "y": 0.0} for name in "abcdca"]
    found = bs.streams.table(rows, target="y", task="regression", slots=3)
    assert found.stream.examples.x.argmax(axis=1).tolist() == [0, 1, 2, 2, 2, 0]
    assert found.said[-1] == (
        "column c: 2 more categories than there was room for, 'c' first, in 3 rows; "
        "they share one input (--slots 5 for all)"
    )


def test_forty_cities_have_forty_slots_and_room_for_more():
    rows = [{"city": f"city {n % 40}", "y": 1.5} for n in range(400)]
    rows += [{"city": f"late {n}", "y": 1.5} for n in range(13)]
    found = bs.streams.table(rows, target="y")
    x = found.stream.examples.x
    assert x.shape[1] == 40 + 12 + 1  # a quarter and two to spare, and one for all others
    assert len(np.unique(x[:400], axis=0)) == 40
    assert "  city  category  40 names, room for 12 more" in found.said
    assert found.said[-1].startswith("column city: 1 more categories than there was room for")


def test_numbers_are_standardised_with_the_rows_so_far():
    rng = np.random.default_rng(0)
    values = 1e6 + 10 * rng.standard_normal((50, 3))
    table = bs.streams.table(values, target=-1, task="regression")
    for row in range(1, 50):
        seen = values[: row + 1]
        expected = (seen[-1] - seen.mean(axis=0)) / seen.std(axis=0)
        found = [*table.stream.examples.x[row], *table.stream.examples.y[row]]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        if row >= 10:
            before = values[:row, 2]
            given_back = (table.rows[row].centre, table.rows[row].scale)
            np.testing.assert_allclose(given_back, (before.mean(), before.std()), rtol=1e-9)


ROWS = st.lists(
    st.tuples(st.floats(-1e3, 1e3), st.sampled_from("abc"), st.floats(-1e3, 1e3)),
    min_size=2,
    max_size=20,
)


@settings(deadline=None, max_examples=50)
@given(ROWS, st.data())
def test_what_comes_later_changes_nothing_before(rows, data):
    cut = data.draw(st.integers(1, len(rows) - 1))
    later = data.draw(st.permutations([y for *_, y in rows[cut:]]))
    changed = rows[:cut] + [(x, c, y) for (x, c, _), y in zip(rows[cut:], later, strict=True)]
    one, other = (
        bs.streams.table(
            [{"x": x, "c": c, "y": y} for x, c, y in some], target="y", task="regression"
        )
        for some in (rows, changed)
    )
    # Inputs never depend on labels; what is known when row `cut` is forecast, not on later ones.
    np.testing.assert_array_equal(one.stream.examples.x, other.stream.examples.x)
    np.testing.assert_array_equal(one.stream.examples.y[:cut], other.stream.examples.y[:cut])
    for a, b in zip(one.rows[: cut + 1], other.rows[: cut + 1], strict=True):
        np.testing.assert_array_equal((a.centre, a.scale), (b.centre, b.scale))


def test_classes_are_numbered_as_they_appear_and_too_many_are_refused():
    rows = [({"x": 1.0}, label) for label in ("no", "yes", None, "maybe", "no")]
    options = {"target": "label", "task": "classification", "classes": 2}
    table = bs.streams.table(rows, head=3, on_bad="skip", **options)
    assert table.classes == ("no", "yes")
    np.testing.assert_array_equal(table.stream.examples.y, [0, 1, np.nan, 0])
    reason = "column label: 'maybe' is one more class than the 2 there is room for (--classes)"
    assert table.skipped[0] == ("row 4", reason)
    message = "classes must be at least 3, as many as label has in all 5 rows, got 2"
    with pytest.raises(ValueError, match=message):
        bs.streams.table(rows, **options)


def test_classes_beyond_the_first_rows_have_room_to_spare():
    rows = [{"x": 1.5, "y": f"k{n // 10}"} for n in range(60)]
    found = bs.streams.table(rows, target="y", head=30, on_bad="skip")
    (line,) = (line for line in found.said if " target " in line)
    assert line == "  y  target    classification (guessed from names), 3 classes, room for 2 more"
    assert found.classes == ("k0", "k1", "k2", "k3", "k4")
    assert len(found.skipped) == 10
    assert found.said[-1].endswith("these rows were left out (--classes 6 for all)")


def test_a_refused_row_teaches_nothing():
    rows = [{"x": 1.0, "y": "a"}, {"x": 5.0, "new": 1, "y": "b"}, {"x": 2.0, "y": "c"}]
    found = bs.streams.table(rows, target="y", task="classification", head=1, on_bad="skip")
    assert found.classes == ("a", "c")
    assert [row.classes for row in found.rows] == [0, 1]  # known before each
    np.testing.assert_allclose(found.stream.examples.x[:, 0], [0, 1])


def test_units_are_not_known_before_ten_labels():
    rows = [{"x": 1.0, "y": float(number)} for number in range(12)]
    scales = [row.scale for row in bs.streams.table(rows, target="y", task="regression").rows]
    assert np.isnan(scales).tolist() == [True] * 10 + [False] * 2


@pytest.mark.parametrize(
    "value", ["1e200", 10**400, float("inf"), "oops", [1, 2]], ids=lambda value: repr(value)[:5]
)
def test_a_number_that_cannot_be_squared_is_missing(value):
    rows = [{"x": 1.0, "y": 1.0}, {"x": value, "y": value}, {"x": 3.0, "y": 1.0}]
    found = bs.streams.table(rows, target="y", task="regression")
    np.testing.assert_allclose(found.stream.examples.x[:, 0], [0, 0, 1])
    assert np.isnan(found.stream.examples.y[:, 0]).tolist() == [False, True, False]
    assert [line.split(";")[0] for line in found.said[-2:]] == [
        "column x: 1 cell counts as missing",
        "column y: 1 cell counts as missing",
    ]


def test_dates_of_every_kind_are_seconds():
    day = datetime.date(2024, 1, 2)
    dates = (day, datetime.datetime(2024, 1, 2), np.datetime64("2024-01-02"), "2024-01-02")
    first = {"when": "2024-01-01", "y": 1.0}
    for date in dates:
        rows = [first, {"when": date, "y": 1.0}, {"when": "2024-01-03", "y": 1.0}]
        found = bs.streams.table(rows, target="y", task="regression")
        np.testing.assert_allclose(found.stream.examples.x[:, 0], [0, 1, np.sqrt(1.5)])
        assert bs.streams.table(rows[1:], target="y", task="regression").columns.dates == ("when",)


def test_dates_fall_into_the_day_the_week_and_the_year():
    start = datetime.datetime(2024, 3, 4, 6, tzinfo=datetime.UTC)
    hours = [start + datetime.timedelta(hours=h) for h in (0, 12, 24, 24 * 7, 24 * 365.2425)]
    rows = [{"when": hour, "y": 1.0} for hour in hours] + [{"when": None, "y": 1.0}]
    found = bs.streams.table(rows, target="y", task="regression").stream.examples.x
    assert found.shape == (6, 7)
    day, week, year = found[:, [1, 4]], found[:, [2, 5]], found[:, [3, 6]]
    np.testing.assert_allclose(np.linalg.norm(found[:5, 1:], axis=1), np.sqrt(6))
    np.testing.assert_allclose(day[0], [np.sqrt(2), 0], atol=1e-9)  # six in the morning
    np.testing.assert_allclose(day[1], -day[0], atol=1e-9)
    np.testing.assert_allclose(day[2:4], [day[0]] * 2, atol=1e-9)
    np.testing.assert_allclose(week[3], week[0], atol=1e-9)
    assert np.linalg.norm(week[1] - week[0]) > 0.5
    np.testing.assert_allclose(year[4], year[0], atol=1e-6)
    np.testing.assert_array_equal(found[5], 0)


def test_broken_text_is_reported_where_it_is(tmp_path):
    path = tmp_path / "t.csv"
    text = 'a,y\n1,1\n"x\ny",2\nÉ\xe9,3\nÄ,4\n"never,5\n6,6\n'.encode()
    path.write_bytes(text.replace("é".encode(), b"\xe9"))
    rows = list(read(path))
    assert [(row.place, row.problem) for row in rows] == [
        ("t.csv line 2", ""),
        ("t.csv lines 3 to 4", ""),
        ("t.csv line 5", "is not UTF-8"),
        ("t.csv line 6", ""),
        ("t.csv lines 7 to 8", "opens a quote that is never closed"),
    ]
    cut = tmp_path / "t.csv.gz"
    cut.write_bytes(gzip.compress(b"a,y\n" + b"1,1\n" * 5000)[:-20])
    assert list(read(cut))[-1].problem == "is cut off: the file is not whole"


@pytest.mark.parametrize("nothing", ["", " ", "NA", "n/a", "nan", "null", "None", "?", "-", "#N/A"])
def test_one_word_for_missing_in_every_column(nothing):
    rows = [[str(n), f"2024-01-0{n}", "ab"[n % 2], ["no", "yes"][n % 2]] for n in range(1, 9)]
    names = ("x", "when", "c", "y")
    rows = [dict(zip(names, row, strict=True)) for row in [[nothing] * 4, *rows]]
    found = bs.streams.table(rows, target="y")
    assert found.classes == ("yes", "no")
    assert found.columns == bs.streams.Columns(("x",), ("c",), ("when",))
    assert found.stream.examples.x.shape == (9, 1 + 7 + 3)
    np.testing.assert_array_equal(found.stream.examples.x[0], 0)
    assert np.isnan(found.stream.examples.y[0])
    assert found.rows[0].target is None


def test_files_are_counted(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n')
    assert (count(tmp_path / "t.csv"), count(tmp_path / "t.jsonl"), count("-")) == (2, 1, None)


def same_rows(source):
    found = bs.streams.table(source, target="b", task="regression").stream.examples
    np.testing.assert_array_equal(found.x[:, 0], [0, 1, np.sqrt(1.5)])


def test_every_kind_of_source_gives_the_same_rows(tmp_path, monkeypatch):
    rows = [{"a": a, "b": 2.0 * a} for a in (1.0, 2.0, 3.0)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    text = "a,b\n" + "".join(f"{row['a']},{row['b']}\n" for row in rows)
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text(lines)
    (tmp_path / "t.csv").write_text("﻿" + text)  # as spreadsheets write it
    (tmp_path / "t.tsv").write_text(text.replace(",", "\t"))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("t.parquet", "t.jsonl", "t.csv", "t.tsv", "t.csv.gz"):
        same_rows(tmp_path / name)
    same_rows(rows)
    same_rows(iter(rows))
    same_rows([({"a": row["a"]}, row["b"]) for row in rows])
    same_rows([(np.array([row["a"]]), row["b"]) for row in rows])
    for written in (lines, text, "\ufeff" + text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written.encode())))
        same_rows("-")
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "1.csv").write_text("a,b\n1,2\n2,4\n")
    (folder / "2.jsonl").write_text('{"a": 3, "b": 6}\n')
    (folder / "notes.txt").write_text("not data")
    same_rows(folder)


class Polars:
    """A frame, as far as polars is asked."""

    columns = ("a", "b")

    def iter_rows(self):
        """Tuples."""
        return iter([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)])


class Pandas:
    """A frame, as far as pandas is asked."""

    columns = ("a", "b")

    def itertuples(self, index, name):
        """Tuples."""
        assert (index, name) == (False, None)
        return Polars().iter_rows()


class Pair(NamedTuple):
    """A row with names."""

    a: float
    b: float


def test_what_python_holds_is_read_by_what_it_can_do():
    a, b = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    same_rows({"a": a, "b": b})
    same_rows({"a": np.array(a), "b": tuple(b)})
    same_rows(Polars())
    same_rows(Pandas())
    same_rows([Pair(*row) for row in zip(a, b, strict=True)])
    same_rows(np.array(list(zip(a, b, strict=True)), dtype=[("a", float), ("b", float)]))
    same_rows((np.array(a)[:, None], b))
    arrow = pytest.importorskip("pyarrow")
    same_rows(arrow.table({"a": a, "b": b}))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "the source must be a file's name, a frame, a dict of columns, or rows, got int"),
        (b"a,b", "got bytes"),
        ({"a": 1, "b": 2}, "a single row goes into a list"),
        ({"a": [1], "b": [1, 2]}, "the columns must be equally long, got a 1, b 2"),
        ([1, 2], "row 1: must be a dict or a flat array, got int"),
        (["a,b"], "row 1: must be a dict or a flat array, got str"),
        ((np.ones((3, 1)), [1, 2]), "inputs and targets must be equally many, got 3 and 2"),
    ],
)
def test_what_holds_no_rows_is_refused_in_one_sentence(source, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bs.streams.table(source, target="b")


def test_json_lines_that_are_not_objects_are_reported(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n{"a": \n[1]\n')
    problems = [row.problem for row in read(path)]
    assert problems[0] == ""
    assert problems[1].startswith("is not JSON: ")
    assert problems[2] == "is not a JSON object"


def test_a_column_that_appears_late_is_not_dropped_in_silence():
    rows = [{"a": 1, "y": 1}, {"a": 2, "b": 5, "y": 2}]
    options = {"target": "y", "task": "regression", "head": 1}
    found = bs.streams.table(rows, on_bad="skip", **options)
    assert found.skipped[0].reason == (
        "column b: was not there in the first rows (--head N looks at more, --ignore leaves it out)"
    )
    assert len(bs.streams.table(rows, ignore=["b"], **options).stream) == 2
    assert bs.streams.table(rows, **{**options, "head": 2}).columns.numeric == ("a", "b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "z"}, "target must be one of size, colour, when, y, got 'z'"),
        ({"task": "ranking"}, "task must be 'regression' or 'classification', got 'ranking'"),
        ({"on_bad": "ignore"}, "on_bad must be 'raise' or 'skip', got 'ignore'"),
        ({"target": 4}, "target must be a column of 4, got 4"),
        ({"slots": 0}, "slots must be a whole number, 1 or above"),
        ({"classes": 1}, "classes must be a whole number, 2 or above"),
        ({"categorical": ["z"]}, "categorical must be one of size, colour, when, y, got 'z'"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(csv_file, options, message):
    with pytest.raises(ValueError, match=message):
        bs.streams.table(csv_file, **{**OPTIONS, **options})


def test_sources_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        bs.streams.table(tmp_path / "no.csv", **OPTIONS)
    with pytest.raises(FileNotFoundError, match="must hold files of one of"):
        bs.streams.table(tmp_path, **OPTIONS)
    (tmp_path / "notes.md").write_text("words")
    with pytest.raises(ValueError, match="must end in one of"):
        bs.streams.table(tmp_path / "notes.md", **OPTIONS)
    (tmp_path / "t.csv").write_text("a,y\n")
    with pytest.raises(ValueError, match="at least one row that can be read"):
        bs.streams.table(tmp_path / "t.csv", **OPTIONS)


def odd_rows(number):
    """Columns in no order, with a date, what is missing, what is no number, and late names."""
    rng = np.random.default_rng(0)
    for row in range(number):
        size = "error" if row % 31 == 7 else f"{rng.normal():.3f}"
        colour = f"late{row % 9}" if row > 40 else "red" if row % 3 else "NA"
        day = "" if row % 13 == 5 else f"{row % 28 + 1}/2/2024"
        kind = f"late{row % 7}" if row > 40 else "up" if row % 2 else "down"
        yield {"size": size, "colour": colour, "day": day, "age": row % 50, "kind": kind}


def assert_equally_encoded(one, other):
    for mine, yours in zip(one, other, strict=True):
        np.testing.assert_equal(mine, yours)


def through_json(cls, item):
    return cls.from_json(json.loads(json.dumps(item.to_json(), sort_keys=True)))


@pytest.mark.parametrize(("target", "task"), [("kind", "classification"), ("age", "regression")])
def test_an_encoder_goes_on_after_json_as_if_nothing_had_been(target, task):
    rows = list(odd_rows(120))
    encoder, items, plan = bs.streams.prepared(rows, target=target, task=task, head=40)
    whole = list(items)
    fresh = through_json(bs.streams.Plan, plan).encoder()
    _encode(fresh, rows[:70])
    copy = through_json(bs.streams.Encoder, fresh)
    assert_equally_encoded(whole[70:], _encode(copy, rows[70:], first=71))
    assert copy.notes() == encoder.notes()
    assert len(copy.notes()) == 3  # cells of size; categories of colour; kinds
    assert copy.to_json() == encoder.to_json()


def _encode(encoder, rows, first=1):
    found = []
    for number, row in enumerate(rows, start=first):
        try:
            found.append(encoder.encode(row, f"row {number}"))
        except ValueError as error:
            found.append(bs.streams.Unreadable(f"row {number}", str(error)))
    return found


def test_a_file_that_has_grown_is_read_by_its_plan_as_it_was(tmp_path):
    path = tmp_path / "grown.csv"
    path.write_text("a;b;y\n" + "1,5;2;up\n2,5;3;down\n" * 5)
    _, items, plan = bs.streams.prepared(path, target="y")
    before = list(items)
    with path.open("a") as file:
        file.write("3.75;x;other\n4.25;z;up\n" * 20)
    _, _, anew = bs.streams.prepared(path, target="y")
    saved = through_json(bs.streams.Plan, plan)
    encoder, items, again = bs.streams.prepared(path, target="y", plan=saved)
    assert again.lines() == plan.lines() != anew.lines()
    assert_equally_encoded(before, list(itertools.islice(items, 10)))
    assert again.dialects == plan.dialects != anew.dialects
    assert encoder.outputs == 2


def test_new_rows_are_read_as_those_before_were_if_they_can_be():
    before = sniff("a;b;y\n1.234,5;x;1\n2.500,25;y;2\n")
    like = Like([before], ["a", "b"], "y")
    new = "b;a\nx;1.234\n"  # a thousand, or little more than one?
    assert sniff(new).numbers == NumberStyle(".", "")
    assert like.sniff(new, Format(), native=",").numbers == before.numbers
    assert like.sniff(new, Format(decimal="."), native=",").numbers == NumberStyle(".", "")
    assert like.sniff("a,b\n1.5,x\n", Format(), native=",").numbers == NumberStyle(".", "")


def test_without_a_header_the_column_that_is_left_out_is_the_target():
    before = sniff("1.5,7,2.5\n3.5,8,4.5\n")
    found = Like([before], ["c1", "c3"], "c2").sniff("1.5,2.5\n", Format(), native=",")
    assert found.names == ("c1", "c3")


def test_rivers_own_data_sets_are_streams():
    pytest.importorskip("river")
    table = bs.streams.river("ImageSegments")
    assert table.stream.examples.x.shape == (2310, 18)
    assert len(table.classes) == 7
    with pytest.raises(ValueError, match="name must be one of AirlinePassengers"):
        bs.streams.river("Elec2")
    assert "river/Phishing" in datasets.NAMES
