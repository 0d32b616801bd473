"""The whole session runs in float64, where oracles are compared; float32 is asked for by name."""

import os
from pathlib import Path

import jax
import pytest

import bayestream

# `make test-native` builds the kernels elsewhere, with sanitizers; they are found first.
if folder := os.environ.get("NATIVE_UNDER_TEST"):
    bayestream.__path__.insert(0, folder)

jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """A compiled program takes a dozen of the 65,530 mappings that Linux gives a process."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()
