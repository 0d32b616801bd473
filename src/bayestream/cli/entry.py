"""The console script: it can be interrupted before JAX is imported."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from bayestream.cli.interrupts import EXIT_CODE, INTERRUPTS


def main() -> None:
    """The `bayestream` command, which ends with exit code 130 if it was interrupted."""
    INTERRUPTS.install()
    from bayestream.cli.main import COMMANDS, application, being_completed  # imports take time

    typed = being_completed()
    named = [word for word in (typed or sys.argv)[1:2] if word in COMMANDS]
    if named and not typed:
        # Of kept programs, whose folder is this very CPU's, XLA would say at length that they may
        # be another's; what goes wrong is raised. It looks once, when JAX is imported.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from bayestream.cli.cache import keep_programs

        keep_programs()
    try:
        application(named)()
    except SystemExit as end:
        INTERRUPTS.ignore()
        # A shutdown takes a third of a second, and would still change the code if Ctrl-C has ended
        # the reader of our output.
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(EXIT_CODE if INTERRUPTS.requested else int(end.code or 0))
