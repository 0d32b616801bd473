"""The paper's tables, as data (Chang et al. 2023, arXiv:2305.19535)."""

from __future__ import annotations

import csv
from pathlib import Path


def table(name: str) -> list[dict[str, str]]:
    """The rows of one of the paper's tables.

    >>> table("fmnist_cnn_inflation_misclassification")[0]["percent"]
    '42.6'
    """
    with Path(__file__).with_name(f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
