"""Files that were damaged: rows are read or refused in a sentence, and nothing else happens."""

import io
import random
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bayestream as bs
from bayestream.streams.dialects import Format
from bayestream.streams.tables import prepared
from test_awkward_tables import CASES

SEEDS = [
    case.text if isinstance(case.text, bytes) else case.text.encode() for case in CASES.values()
]
PIECES = [b",", b";", b"\t", b"|", b'"', b"'", b"\n", b"\r", b"\r\n", b"\\", b"\x00", b"\xff"]
PIECES += [
    b"\xe9",
    "é".encode(),
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"#",
    b" ",
    b"nan",
    b"1e999",
    b"inf",
]
PIECES += [
    b"9" * 400,
    b"x" * 200_000,
    b"01/02/2024",
    b"99.99.9999",
    b"-",
    b"1,5",
    b"1.234,5",
    b"NA",
]


MUTATIONS = [
    lambda data, at, to, piece: data[:at] + piece[:1] + data[at + 1 :],
    lambda data, at, to, piece: data[:at] + piece + data[at:],
    lambda data, at, to, piece: data[:at] + data[to:],
    lambda data, at, to, piece: data[:at] + data[at:to] * 3 + data[to:],
    lambda data, at, to, piece: data[:at],
    lambda data, at, to, piece: data.replace(data[at : at + 1] or b",", piece, 3),
    lambda data, at, to, piece: data[to:] + data[at:to] + data[:at],
]


def mutated(data, chance):
    """With some bytes changed, cut, moved, tripled, or replaced by what is awkward."""
    for _ in range(chance.randint(1, 8)):
        at, to = sorted(chance.choices(range(len(data) + 1), k=2))
        piece = chance.choice([*PIECES, bytes([chance.randrange(256)])])
        data = chance.choice(MUTATIONS)(data, at, to, piece)
    return data


def opened(options):
    """What was prepared, or the sentence it was refused with."""
    try:
        return prepared("-", **options), ""
    except ValueError as error:
        return None, str(error)


def check(options):
    """It is read, or refused in a sentence; what is read is finite."""
    found, sentence = opened(options)
    if found is None:
        assert sentence.endswith((".", "?")), sentence
        assert len(sentence) < 5_000
        return False
    encoder, items, plan = found
    for row in items:
        if isinstance(row, bs.streams.Encoded):
            assert row.x.shape == (encoder.inputs,)
            assert np.isfinite(row.x).all()
            assert np.isnan(row.y) or np.isfinite(row.y)
        else:
            assert row.reason
    assert all(plan.lines())
    assert all(encoder.notes())
    return True


def options_of(chance):
    """Now and then, what a user might say."""
    task = chance.choice([None, "regression", "classification"])
    options = {"target": chance.choice([None, 0, -1, -1, "y"]), "task": task}
    options["head"] = chance.choice([1, 2, 300])
    if chance.random() < 0.2:
        options["format"] = Format(
            separator=chance.choice([None, ";", "tab", " "]),
            decimal=chance.choice([None, ",", "."]),
            header=chance.choice([None, True, False]),
            encoding=chance.choice([None, "utf-8", "utf-16", "ascii"]),
        )
    return options


def damage(seed, monkeypatch):
    chance = random.Random(seed)
    data = mutated(chance.choice(SEEDS), chance)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return check(options_of(chance))


FIXTURE = [HealthCheck.function_scoped_fixture]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=FIXTURE)
@given(st.integers(0, 2**32))
def test_a_damaged_file_is_read_or_refused_in_a_sentence(monkeypatch, seed):
    damage(seed, monkeypatch)


@pytest.mark.slow
def test_ten_thousand_damaged_files_are_read_or_refused_in_a_sentence(monkeypatch):
    read = sum(damage(seed, monkeypatch) for seed in range(10_000))
    print(f"\n{read} of 10,000 were read, the others refused")
    assert 2_000 < read < 8_000
