"""Compiled programs are kept for the next command, in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import jax

from bayestream.streams import datasets

_MOST = 256 * 2**20  # bytes; a command's programs take about 200,000


def programs() -> Path | None:
    """Where compiled programs are kept; None where that is switched off or arranged otherwise."""
    chosen = os.environ.get("BAYESTREAM_CACHE", "")
    if chosen == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    return Path(chosen or datasets.cache(), f"programs-{_machine()}")


def keep_programs() -> None:
    """Keep what is compiled, where there is a folder for it that can be written to.

    Beyond 256 MB, what has not been used for longest goes. JAX would see to that itself, but needs
    another package for it.
    """
    with suppress(OSError, RuntimeError):  # a folder that cannot be written to, or no home
        folder = programs()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
            _prune(folder)


def _prune(folder: Path) -> None:
    """Delete the files that have not been read for longest, until the rest is small enough."""
    used = [(path, path.stat()) for path in folder.iterdir()]
    used.sort(key=lambda one: max(one[1].st_atime, one[1].st_mtime), reverse=True)
    total = 0
    for path, about in used:
        total += about.st_size
        if total > _MOST:
            path.unlink(missing_ok=True)


def _machine() -> str:
    """The CPU's abilities in short: a home may be shared with machines that have fewer."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        return hashlib.blake2b(flags.encode(), digest_size=4).hexdigest()
    return "any"
