"""The whole session runs in float64, where oracles are compared; float32 is asked for by name."""

import os

import jax

import bayestream

# `make test-native` builds the kernels elsewhere, with sanitizers; they are found first.
if folder := os.environ.get("NATIVE_UNDER_TEST"):
    bayestream.__path__.insert(0, folder)

jax.config.update("jax_enable_x64", True)
