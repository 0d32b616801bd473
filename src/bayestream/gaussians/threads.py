"""One thread for the factorisations that JAX makes on CPU.

They are small, and JAX makes them with the OpenBLAS that scipy's wheel brings, whose threads wait
for each other: beside a busy process, milliseconds a call. NumPy's wheel brings its own copy, which
keeps its threads; so does scipy's where `OPENBLAS_NUM_THREADS` is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast


def limit() -> None:
    """Let scipy's own OpenBLAS, if it has one, use no thread but the caller's."""
    if "OPENBLAS_NUM_THREADS" in os.environ:
        return
    import scipy.linalg.cython_lapack  # the library is loaded with it, as JAX does
    from threadpoolctl import ThreadpoolController

    # scipy.libs beside the package, or .dylibs in it.
    bundled = str(Path(scipy.__file__).resolve().parent)
    for library in cast(Any, ThreadpoolController()).lib_controllers:
        if str(Path(library.filepath).resolve()).startswith(bundled):
            library.set_num_threads(1)
