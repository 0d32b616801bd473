"""Where a hyper-parameter is looked for; each estimator declares its own beside itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


def _itself(value: Any) -> Any:
    return value


class Range(NamedTuple):
    """Numbers from low to high, on a logarithmic scale.

    With `complement`, it is 1 − value that lies there: for what is 1 or just below. `make` turns
    the number into what the factory takes, and `code` says so in Python.

    >>> Range(1e-4, 1e-1, complement=True).value(0.001)
    0.999
    """

    low: float
    high: float
    complement: bool = False
    make: Callable[[Any], Any] = _itself
    code: str = "{}"

    def value(self, searched: float) -> float:
        """From the searched number to the hyper-parameter's."""
        return 1 - searched if self.complement else searched

    def searched(self, value: float) -> float:
        """And back, into the range."""
        return min(max(1 - value if self.complement else value, self.low), self.high)

    def short(self, value: float) -> str:
        """The value in four digits that matter: those of 1 − value where that is searched.

        >>> Range(1e-8, 1e-1, complement=True).short(1 - 1.23456e-5)
        '0.99998765'
        """
        digits = f"{1 - value if self.complement else value:.4g}"
        return f"{1 - float(digits):.12g}" if self.complement else digits


Space = dict[str, Range]
