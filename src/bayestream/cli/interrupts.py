"""Ctrl-C and SIGTERM: a command ends between two pieces of work and keeps what it has done.

An exception from a signal handler is raised wherever Python happens to be; inside one of JAX's
callbacks it is a segmentation fault. So the handler sets a flag, and commands ask for it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

EXIT_CODE = 130  # what a shell reports of a command that Ctrl-C has ended
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NUDGE = signal.SIGURG  # ends a blocking read, and is otherwise of no account
T = TypeVar("T")


class Interrupts:
    """A flag that the first signal sets; the second ends the process at once.

    Until `begin` nothing is at stake, and the first one ends the process as well.
    """

    def __init__(self) -> None:
        self.requested = False
        self._begun = False
        self._waiting = False

    def install(self) -> None:
        """Handle both signals from now on, except those that were ignored, as under nohup."""
        numbers = _handled()
        if numbers:
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(reader,), daemon=True).start()
            signal.signal(_NUDGE, self._handle)
        for number in numbers:
            signal.signal(number, self._handle)

    def ignore(self) -> None:
        """Nothing is left to be interrupted but the interpreter's shutdown, which cannot be."""
        for number in _handled():
            signal.signal(number, signal.SIG_IGN)

    def begin(self) -> None:
        """From now on there is work to be ended in good order."""
        self._begun = True

    def check(self) -> None:
        """Raise KeyboardInterrupt, here where it is safe, if a signal has come."""
        if self.requested:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Generator[None, None, None]:
        """A wait for rows or for a download, which a signal ends with KeyboardInterrupt.

        Only for plain Python: nothing of JAX may be on the stack.
        """
        gc.disable()  # JAX has a callback there, which would swallow the exception
        self._waiting = True
        try:
            self.check()  # a signal may have come before; from here on the handler raises
            yield
        finally:
            self._stop_waiting()

    def until(self, items: Iterable[T]) -> Iterator[T]:
        """The items, up to the one that is waited for when a signal comes."""
        iterator = iter(items)
        while True:
            try:
                with self.waiting():
                    item = next(iterator)
            except StopIteration:
                return
            except KeyboardInterrupt:
                self.requested = True
                return
            yield item

    def _stop_waiting(self) -> None:
        self._waiting = False
        gc.enable()

    def _handle(self, number: int, _: object) -> None:
        self.requested |= number in _SIGNALS
        if self._waiting and self.requested:
            self._stop_waiting()  # the signal may have come just before `try`, or in `finally`
            raise KeyboardInterrupt

    def _watch(self, signals: int) -> None:
        """Answer at once: the handler itself must wait while the main thread compiles."""
        os.read(signals, 1)
        if self._begun:
            _say("interrupted: ending in good order; once more to end at once")
            self._nudge_until_the_next(signals)
        _say("interrupted")
        os._exit(EXIT_CODE)

    def _nudge_until_the_next(self, signals: int) -> None:
        """Wait for the second signal; end the read that the first did not.

        Another thread may have got it, or the main thread have begun to read just then.
        """
        main = threading.main_thread().ident
        while True:
            if select.select([signals], [], [], 0.1)[0]:
                if os.read(signals, 1)[0] in _SIGNALS:
                    return
            elif self._waiting and main is not None:
                signal.pthread_kill(main, _NUDGE)


INTERRUPTS = Interrupts()  # signals are the process's, and so is this


def _handled() -> list[signal.Signals]:
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _say(text: str) -> None:
    # Not `print`: the main thread may be in the midst of one.
    with suppress(OSError):
        # On a terminal there may be a bar, which hides the cursor and does not end its line.
        begin = "\033[?25h\n" if os.isatty(2) else ""
        os.write(2, f"{begin}{text}\n".encode())
