"""Tables as people have them: each is read as a person would, or refused in a sentence."""

import datetime
from dataclasses import dataclass, field

import numpy as np
import pytest

import bayestream as bs
from bayestream.streams.dialects import Format
from bayestream.streams.files import HEAD, How, read
from bayestream.streams.tables import prepared
from bayestream.streams.values import moment_of, name_of, number_of

KINDS = {"numeric": "n", "categorical": "c", "date": "d", "left out": "-"}


@dataclass(frozen=True)
class Case:
    """A file, and how a person would read it."""

    text: str | bytes
    kinds: str = ""  # name:kind of each input; n is a number, c a category, d a date, - left out
    rows: dict = field(
        default_factory=dict
    )  # some rows as values: numbers, names, dates, None if missing,
    target: str = "y"
    task: str = ""
    count: int | None = None  # rows that can be read
    bad: list = field(default_factory=list)  # "line: reason" of those that cannot
    refused: str = ""  # or part of the sentence
    said: str = ""  # part of what is said
    options: dict = field(default_factory=dict)
    name: str = "t.csv"


def lines(*rows, end="\n"):
    return end.join(rows) + end


def repeated(header, *rows, times=10):
    return lines(header, *(rows * times))


PLAIN = lines("a,b,y", "1.5,red,10.5", "2.5,blue,12.5", "3.5,red,11.5")
READ = {0: [1.5, "red", 10.5], 2: [3.5, "red", 11.5]}
EUROPEAN = lines("a;b;y", "1,5;rot;10,5", "2,25;blau;12,5", "1.003,5;rot;11,5")

CASES = {
    # Separators, quotes, ends of lines.
    "plain": Case(PLAIN, "a:n b:c", READ, task="regression", count=3),
    "semicolons": Case(PLAIN.replace(",", ";"), "a:n b:c", READ, said="separator semicolon"),
    "tabs in a .csv": Case(PLAIN.replace(",", "\t"), "a:n b:c", READ, said="separator tab"),
    "bars": Case(PLAIN.replace(",", "|"), "a:n b:c", READ, said="separator bar"),
    "commas in a .tsv": Case(PLAIN, "a:n b:c", READ, name="t.tsv"),
    "columns of spaces": Case(
        lines("  a     b      y", " 1.5   red  10.5", " 2.5   blue 12.5", "13.5   red   1.5"),
        "a:n b:c",
        {0: [1.5, "red", 10.5], 2: [13.5, "red", 1.5]},
        name="t.data",
    ),
    "spaces after commas": Case(PLAIN.replace(",", ", "), "a:n b:c", READ),
    "quotes after spaces": Case(
        lines("a, b, y", '1.5, "x, y", 2.5', '2.5, "z", 3.5', '3.5, "z", 3.5'),
        "a:n b:c",
        {0: [1.5, "x, y", 2.5]},
    ),
    "every cell quoted": Case(
        '"a";"b";"y"\n"1.5";"red";"10.5"\n"2.5";"b;c";"12.5"\n"3.5";"red";"11.5"\n',
        "a:n b:c",
        {0: [1.5, "red", 10.5], 1: [2.5, "b;c", 12.5]},
    ),
    "single quotes": Case(
        lines("a,b,y", "1.5,'x, y',2.5", "2.5,'z',3.5", "2.5,'z',3.5", "2.5,'z',3.5"),
        "a:n b:c",
        {0: [1.5, "x, y", 2.5]},
        said="quote '",
    ),
    "quotes escaped by a backslash": Case(
        lines("a,b,y", r'1.5,"a \"b\", c",2.5', '2.5,"z",3.5'), rows={0: [1.5, 'a "b", c', 2.5]}
    ),
    "quotes doubled": Case(
        lines("a,b,y", '1.5,"a ""b"", c",2.5', "2.5,z,3.5"), rows={0: [1.5, 'a "b", c', 2.5]}
    ),
    "an apostrophe is no quote": Case(
        lines("a,b,y", "1.5,it's,2.5", "2.5,'tis,3.5"), rows={0: [1.5, "it's", 2.5]}
    ),
    "a cell of two lines": Case('a,y\n"x\ny",1.5\nz,2.5\n', rows={0: ["x\ny", 1.5]}, count=2),
    "text with commas between semicolons": Case(
        lines("b;y", "Berlin, Mitte;1.5", "Paris, Nord;2.5", "Rome;3.5"),
        "b:c",
        {0: ["Berlin, Mitte", 1.5]},
    ),
    "ends of lines as of Windows": Case(PLAIN.replace("\n", "\r\n"), "a:n b:c", READ, count=3),
    "ends of lines as of old Macs": Case(PLAIN.replace("\n", "\r"), "a:n b:c", READ, count=3),
    "no end of the last line": Case(PLAIN.rstrip(), "a:n b:c", READ, count=3),
    "blank lines": Case("\n\n" + PLAIN.replace("\n", "\n\n") + ",,\n", "a:n b:c", READ, count=3),
    "separators at the ends of rows": Case(
        lines("a,y", "1.5,2.5,", "2.5,3.5,", "2.5,3.5,"), "a:n", {0: [1.5, 2.5]}, count=3
    ),
    "separators at the ends of all lines": Case(
        lines("a,y,", "1.5,2.5,", "2.5,3.5,"), "a:n c3:-", {0: [1.5, 2.5]}
    ),
    "the separator is given": Case(
        lines("a:y", "1.5:2.5", "2.5:3.5"), "a:n", {0: [1.5, 2.5]}, options={"separator": ":"}
    ),
    # Encodings.
    "a mark of UTF-8": Case(b"\xef\xbb\xbf" + PLAIN.encode(), "a:n b:c", READ),
    "UTF-16 with a mark": Case(PLAIN.encode("utf-16"), "a:n b:c", READ, said="UTF-16"),
    "UTF-16 without": Case(PLAIN.encode("utf-16-le"), "a:n b:c", READ, said="UTF-16-LE"),
    "Latin-1": Case(
        PLAIN.replace("red", "größe").encode("latin-1"),
        rows={0: [1.5, "größe", 10.5]},
        said="LATIN-1",
    ),
    "Windows-1252": Case(
        PLAIN.replace("red", "“ok”").encode("cp1252"),
        rows={0: [1.5, "“ok”", 10.5]},
        said="Windows-1252",
    ),
    "the encoding is given": Case(
        PLAIN.replace("red", "бел").encode("cp1251"),
        rows={0: [1.5, "бел", 10.5]},
        options={"encoding": "cp1251"},
    ),
    "an unknown encoding": Case(PLAIN, refused="encoding must be", options={"encoding": "utf-9"}),
    # Numbers.
    "decimal commas": Case(
        EUROPEAN,
        "a:n b:c",
        {0: [1.5, "rot", 10.5], 2: [1003.5, "rot", 11.5]},
        said="decimal comma, thousands' point",
    ),
    "thousands' points beside decimal commas": Case(
        lines("a;y", "1.234;0,5", "12;1,5"), "a:n", {0: [1234, 0.5]}, said="thousands' point"
    ),
    "points and commas mixed": Case(
        lines("a;y", "52.52;0,5", "13.405;1,5"), "a:n", {0: [52.52, 0.5], 1: [13.405, 1.5]}
    ),
    "decimal commas in quotes": Case(
        lines("a,y", '"1,5","10,5"', '"2,25","12,5"'), "a:n", {1: [2.25, 12.5]}
    ),
    "decimal commas without a header": Case(
        lines("1,5;2,5;7", "2,5;3,5;8", "3,5;4,25;9"), "c1:n c2:n", {2: [3.5, 4.25, 9]}, target="c3"
    ),
    "thousands": Case(
        lines("a,y", '"1,234",1.5', '"1,234,567",2.5', "12,3.5"), "a:n", {1: [1234567, 2.5]}
    ),
    "thousands or decimals, nobody knows": Case(
        lines("a;y", "1,234;1", "5,678;2"), "a:n", {0: [1.234, 1]}, said="--decimal . if not"
    ),
    "three digits after a nought and a comma": Case(
        lines("a\ty", "0,431\t1,248", "0,007\t2,312"),
        "a:n",
        {0: [0.431, 1.248], 1: [0.007, 2.312]},
        said="decimal comma",
    ),
    "the decimal sign is given": Case(
        lines("a;y", "1,234;1", "5,678;2"), "a:n", {0: [1234, 1]}, options={"decimal": "."}
    ),
    "spaces and apostrophes between thousands": Case(
        lines("a;y", "1 234,5;1,5", "1'234,5;2,5"), "a:n", {0: [1234.5, 1.5], 1: [1234.5, 2.5]}
    ),
    "money and percentages": Case(
        lines("a,b,y", '"$1,200.50",12%,€3', "-$7,7.5%,€4"),
        "a:n b:n",
        {0: [1200.5, 12, 3], 1: [-7, 7.5, 4]},
    ),
    "exponents, signs and a true minus": Case(
        lines("a,y", "1e-3,+2", "\u22125,.5"), "a:n", {0: [0.001, 2], 1: [-5, 0.5]}
    ),
    "the first cell is an error": Case(
        repeated("a,y", "1.5,1.5", "2.5,2.5").replace("1.5", "error", 1),
        "a:n",
        {0: [None, 1.5], 1: [2.5, 2.5]},
        said="1 is no number, as 'error'",
    ),
    "a unit below the header": Case(
        lines("speed,y", "m/s,kg", "1.5,2.5", "2.5,3.5", "3.5,4.5"), "speed:n", {0: [None, None]}
    ),
    "errors of a spreadsheet": Case(
        lines("a,y", "#DIV/0!,1.5", "1.5,#N/A", "#REF!,2.5"),
        "a:n",
        {0: [None, 1.5], 1: [1.5, None]},
    ),
    # Codes and categories.
    "codes, some of digits": Case(
        repeated("code,y", "12,1.5", "A3,2.5", "15,3.5"), "code:c", {0: ["12", 1.5], 1: ["A3", 2.5]}
    ),
    "codes with leading zeros": Case(
        repeated("zip,y", "01234,1.5", "56789,2.5"), "zip:c", {0: ["01234", 1.5]}
    ),
    "a number padded with zeros by request": Case(
        repeated("n,y", "012,1.5", "567,2.5"), "n:n", {0: [12, 1.5]}, options={"numeric": ["n"]}
    ),
    "true and false": Case(repeated("a,y", "true,1.5", "false,2.5"), "a:c"),
    "one key a row": Case(
        lines("id,a,y", *(f"user{n},{n}.5,{n}.5" for n in range(30))),
        "id:- a:n",
        said="as keys have",
    ),
    "keys that are to be used": Case(
        lines("id,a,y", *(f"user{n},{n}.5,{n}.5" for n in range(30))),
        "id:c a:n",
        options={"categorical": ["id"]},
    ),
    "an empty column": Case(
        repeated("a,b,y", "1.5,,1.5", "2.5,NA,2.5"),
        "a:n b:-",
        said="empty in all",
    ),
    "every word for missing": Case(
        lines(
            "a,b,y", *(f"{w},{w},1.5" for w in ("", "NA", "n/a", "nan", "NULL", "None", "?", "-"))
        ),
        refused="a column to forecast y from",
    ),
    # Dates.
    "ISO dates": Case(
        lines("d,y", "2024-01-31,1.5", "2024-02-01 12:30,2.5", "2024-02-01T12:30:00Z,3.5"),
        "d:d",
        {0: ["2024-01-31 00:00", 1.5], 1: ["2024-02-01 12:30", 2.5], 2: ["2024-02-01 12:30", 3.5]},
    ),
    "US dates": Case(
        lines("d,y", "01/02/2024,1.5", "01/31/2024 1:30 PM,2.5"),
        "d:d",
        {0: ["2024-01-02 00:00", 1.5], 1: ["2024-01-31 13:30", 2.5]},
        said="month, day, year",
    ),
    "European dates": Case(
        lines("d;y", "01.02.2024;1,5", "31.01.24;2,5"),
        "d:d",
        {0: ["2024-02-01 00:00", 1.5], 1: ["2024-01-31 00:00", 2.5]},
    ),
    "dates with slashes, day first": Case(
        lines("d,y", "01/02/2024,1.5", "31/01/2024,2.5"), "d:d", {0: ["2024-02-01 00:00", 1.5]}
    ),
    "dates nobody can tell": Case(
        lines("d,y", "01/02/2024,1.5", "03/04/2024,2.5"),
        "d:d",
        {0: ["2024-01-02 00:00", 1.5]},
        said="is guessed, as in 01/02/2024 (else --date NAME=dmy)",
    ),
    "dates nobody can tell, beside decimal commas": Case(
        lines("d;y", "01/02/2024;1,5", "03/04/2024;2,5"), "d:d", {0: ["2024-02-01 00:00", 1.5]}
    ),
    "dates in an order that is given": Case(
        lines("d,y", "01/02/2024,1.5", "03/04/2024,2.5"),
        "d:d",
        {0: ["2024-02-01 00:00", 1.5]},
        options={"date": ["d=dmy"]},
    ),
    "dates with months in letters": Case(
        lines("d,y", "5 Mar 2024,1.5", "05-Mar-24,2.5", '"March 5, 2024",3.5'),
        "d:d",
        {n: ["2024-03-05 00:00", n + 1.5] for n in range(3)},
    ),
    "days without separators, by request": Case(
        lines("d,y", "20240305,1.5", "20240306,2.5"),
        "d:d",
        {0: ["2024-03-05 00:00", 1.5]},
        options={"date": ["d"]},
    ),
    "versions are no dates": Case(repeated("v,y", "1.2.3,1.5", "1.2.10,2.5"), "v:c"),
    # Headers.
    "no header": Case(
        lines("5.1,3.5,setosa", "4.9,3.0,virginica", "4.7,3.2,setosa"),
        "c1:n c2:n",
        {0: [5.1, 3.5, "setosa"]},
        target="c3",
        task="classification",
        count=3,
        said="no header: columns are c1 … c3",
    ),
    "a header of years": Case(
        lines("city,2019,2020,y", "Rome,1.5,2.5,3.5", "Oslo,4.5,5.5,6.5"),
        "city:c 2019:n 2020:n",
        {0: ["Rome", 1.5, 2.5, 3.5]},
    ),
    "a header of text above text": Case(
        repeated("a,y", "u,yes", "v,no"),
        "a:c",
        task="classification",
    ),
    "a header as a comment": Case(
        lines("# a,y", "1.5,2.5", "3.5,4.5"), "a:n", {0: [1.5, 2.5]}, count=2
    ),
    "comments before the header": Case(
        lines("# made today", "# by me", "a,y", "1.5,2.5", "3.5,4.5"),
        "a:n",
        {0: [1.5, 2.5]},
        count=2,
    ),
    "a title and a blank line before the header": Case(
        lines("Sales, 2024", "", "a;b;y", "1,5;u;2,5", "3,5;v;4,5", "3,5;v;4,5"),
        "a:n b:c",
        {0: [1.5, "u", 2.5]},
        count=3,
    ),
    "a line for Excel": Case(lines("sep=;", "a;y", "1,5;2,5", "2,5;3,5"), "a:n", {0: [1.5, 2.5]}),
    "names of rows as R writes them": Case(
        lines("a,y", "r1,1.5,2.5", "r2,3.5,4.5"), "row:c a:n", {0: ["r1", 1.5, 2.5]}
    ),
    "an index as pandas writes it": Case(
        lines(",a,y", "0,1.5,2.5", "1,3.5,4.5"), "c1:n a:n", {0: [0, 1.5, 2.5]}
    ),
    "spaces around names": Case(lines(" a , y ", "1.5,2.5", "3.5,4.5"), "a:n"),
    "the header is denied": Case(
        lines("a,b", "u,v", "u,w"), "c1:c", count=3, target="c2", options={"header": False}
    ),
    "a name twice": Case(
        lines("a,a,y", "1,2,3"),
        refused="each column once in its header, got 'a'",
    ),
    # Rows that cannot be read.
    "rows that are short or long": Case(
        lines("a,b,y", "1.5,u,2.5", "3.5,4.5", "1,2,3,4", "5.5,v,6.5"),
        "a:n b:c",
        count=2,
        bad=[
            "t.csv line 3: has 2 fields where the header has 3",
            "t.csv line 4: has 4 fields where the header has 3",
        ],
    ),
    "a short row after a comment": Case(
        lines("# made today", "a,b,y", "1.5,u,2.5", "3.5,4.5", "5.5,v,6.5"),
        "a:n b:c",
        count=2,
        bad=["t.csv line 4: has 2 fields where the header has 3"],
    ),
    "a quote that is not closed": Case(
        lines("a,y", "1.5,2.5", '"3.5,4.5', "5.5,6.5"),
        count=1,
        bad=["t.csv lines 3 to 4: opens a quote that is never closed"],
    ),
    "an empty file": Case("", refused="at least one row that can be read"),
    "a header alone": Case("a,y\n", refused="at least one row that can be read"),
    "one column": Case(
        lines("y", "1.5", "2.5"),
        refused="a column to forecast y from, and has none",
    ),
    "an Excel file": Case(
        b"PK\x03\x04 and so on",
        refused="must be text, and is an Excel or zip file",
    ),
    "a web page": Case("<!DOCTYPE html><html>", refused="is a web page"),
    # What looks like something that it is not.
    "a company called Total": Case(
        repeated("name,a,y", "Total,1.5,2.5", "Shell,,3.5", "Total,,4.5", "BP,3.5,5.5"),
        "name:c a:n",
        count=40,
    ),
    "a last row that begins like totals": Case(
        repeated("name,a,y", "Shell,1.5,2.5") + lines("Total,2.5,3.5"), "name:c a:n", count=11
    ),
    "a line of totals": Case(
        repeated("name,a,y", "Shell,1.5,2.5") + lines("Total,,3.5"),
        "name:c a:n",
        count=10,
        bad=["t.csv line 12: is a line of totals"],
    ),
    "an index that is measured": Case(
        lines("price_index,y", *(f"{100 + 0.37 * i:.2f},{i / 8}" for i in range(40))),
        "price_index:n",
    ),
    "numbers that are called so": Case(
        lines("Number,y", *(f"{(7 * i) % 41},{i / 8}" for i in range(40))), "Number:n"
    ),
    "money of the size of a clock": Case(
        lines("lifetime_revenue,y", *(f"{1_500_000_000 + 7**i},{i / 8}" for i in range(9))),
        "lifetime_revenue:n",
    ),
    "losses among gains": Case(
        repeated("a,y", "-999,2.5", "1200,3.5", "50,4.5"), "a:n", {0: [-999.0, 2.5]}
    ),
    "-999 is said to be a number": Case(
        repeated("a,y", "-999,2.5", "12,3.5", "50,4.5"),
        "a:n",
        {0: [-999.0, 2.5]},
        options={"numeric": ["a"]},
    ),
    "a class called -999": Case(
        repeated("a,y", "1.5,-999", "2.5,7", "2.5,8"),
        "a:n",
        {0: [1.5, "-999"]},
        task="classification",
        count=30,
        options={"task": "classification"},
    ),
    "a number without its column's unit": Case(
        repeated("a,y", "1.5 k,2.5", times=30) + lines("950,3.5"),
        "a:n",
        {0: [1.5, 2.5], 30: [None, 3.5]},
        said="in k, 1 is no number, as '950'",
    ),
    # Target and task.
    "the target is called so": Case(
        lines("a,Target", "1.5,2.5", "3.5,4.5"), "a:n", target="", task="regression"
    ),
    "no name says what the target is": Case(
        PLAIN.replace("y", "price"),
        target="",
        refused="target must name the column to be forecast, one of a, b, price",
    ),
    "a target that is not there": Case(
        PLAIN.replace("y", "price"), target="Pric", refused="got 'Pric'. Did you mean 'price'?"
    ),
    "zeros and ones are classes": Case(repeated("a,y", "1.5,0", "2.5,1"), task="classification"),
    "yes and no are classes": Case(repeated("a,y", "1.5,yes", "2.5,no"), task="classification"),
    "few whole numbers may be either": Case(
        repeated("a,y", "1.5,3", "2.5,4", "2.5,5"),
        refused="task must be regression or classification",
    ),
    "few whole numbers, said to be amounts": Case(
        repeated("a,y", "1.5,3", "2.5,4", "2.5,5"),
        task="regression",
        options={"task": "regression"},
    ),
    "no label": Case(repeated("a,y", "1.5,", "2.5,"), refused="y has no label in all 20 rows"),
    "dates as a target": Case(
        lines("a,y", "1.5,2024-01-01", "1.5,2024-01-02"),
        refused="holds dates",
    ),
    "a column to ignore that is not there": Case(
        PLAIN, refused="ignore must be one of a, b, y, got 'zz'", options={"ignore": ["zz"]}
    ),
    "a column to ignore that is nearly there": Case(
        PLAIN.replace("b,", "colour,"),
        refused="Did you mean 'colour'?",
        options={"ignore": ["color"]},
    ),
    "a column of two kinds": Case(
        PLAIN,
        refused="b must be either numeric or categorical",
        options={"numeric": ["b"], "categorical": ["b"]},
    ),
}
FORMAT = Format._fields


def value(cell, kind, order, style):
    """A cell as it is read."""
    try:
        if kind == "numeric":
            return number_of(cell, style)
        if kind == "date":
            moment = datetime.datetime.fromtimestamp(moment_of(cell, order), datetime.UTC)
            return moment.strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return None
    return name_of(cell)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_read_as_a_person_would_read_it(case, tmp_path):
    path = tmp_path / case.name
    path.write_bytes(case.text.encode() if isinstance(case.text, str) else case.text)
    format = Format(**{name: case.options[name] for name in case.options if name in FORMAT})
    rest = {name: case.options[name] for name in case.options if name not in FORMAT}
    options = {"target": case.target or None, "format": format, **rest}
    if case.refused:
        with pytest.raises(ValueError, match=r"\.$|\?$") as error:
            prepared(path, **options)
        assert case.refused in str(error.value)
        return
    _, items, plan = prepared(path, **options)
    kinds = " ".join(f"{column.name}:{KINDS[column.kind]}" for column in plan.columns)
    assert kinds == (case.kinds or kinds)
    assert not case.task or plan.target.task == case.task
    assert case.said in "\n".join(plan.lines())
    encoded = list(items)
    good = [item for item in encoded if isinstance(item, bs.streams.Encoded)]
    assert case.count is None or len(good) == case.count
    others = [item for item in encoded if isinstance(item, bs.streams.Unreadable)]
    assert [f"{item.place}: {item.reason}" for item in others] == case.bad
    assert all(np.isfinite(row.x).all() for row in good)
    target_kind = "numeric" if plan.target.task == "regression" else "categorical"
    styles = {each.name: each.habits for each in (*plan.columns, plan.target)}
    kinds = {c.name: (c.kind, c.order) for c in plan.columns if c.kind != "left out"}
    kinds[plan.target.name] = (target_kind, "")
    rows = [row for row in read(path, How(format, HEAD, {})) if row.values is not None]
    for index, expected in case.rows.items():
        row = rows[index]
        found = {
            name: value(cell, *kinds[name], styles[name].of(row.numbers))
            for name, cell in row.values.items()
            if name in kinds
        }
        assert list(found.values()) == expected
        assert good[index].target == found[plan.target.name]
