"""Progress on standard error, of work that takes longer than a moment: a bar, or lines."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType

_PATIENCE = 1.0  # seconds of silence before the first drawing
_INTERVAL = 0.2  # seconds between drawings
_SIGN_OF_LIFE = 10.0  # seconds between lines, where there is no terminal
_WIDTH = 24


class Progress:
    """Counts steps and draws them; silent on short work and where nobody watches.

    `show` is None (draw if standard error is a terminal), True or False; `total` may be unknown.
    Shown where there is no terminal, it is a line now and then.

    >>> with Progress("learning", total=3, show=False) as bar:
    ...     bar.advance(3)
    >>> bar.done
    3
    """

    def __init__(self, label: str, *, total: int | None = None, show: bool | None = None) -> None:
        self.label, self.total, self.done = label, total, 0
        self._terminal = sys.stderr.isatty()
        self._show = self._terminal if show is None else show
        self._start = time.monotonic()
        self._next = self._start + (_PATIENCE if self._terminal else _SIGN_OF_LIFE)
        self._drawn = False

    def advance(self, count: int) -> None:
        """`count` more steps are done."""
        self.done += count
        now = time.monotonic()
        if self._show and now >= self._next:
            self._next = now + (_INTERVAL if self._terminal else _SIGN_OF_LIFE)
            self._draw(now - self._start)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._draw(time.monotonic() - self._start, end="\n")

    def _draw(self, elapsed: float, end: str = "") -> None:
        self._drawn = True
        speed = self.done / elapsed
        pace = f"{elapsed:.0f} s so far"
        if speed:
            pace = f"{speed:,.0f}/s" if speed > 1 else f"{1 / speed:.1f} s each"
        if speed and self.total:
            pace += f" · {(self.total - self.done) / speed:.0f} s left"
        text, bar = f"{self.done:,} · {pace}", ""
        if self.total:
            text = f"{self.done:,}/{self.total:,} · {pace}"
            full = round(_WIDTH * self.done / self.total)
            bar = "█" * full + "░" * (_WIDTH - full) + " "
        drawn = f"\r{self.label} {bar}{text}\033[K{end}"
        with suppress(BrokenPipeError):  # the work goes on though nobody watches any more
            sys.stderr.write(drawn if self._terminal else f"{self.label} {text}\n")
            sys.stderr.flush()
