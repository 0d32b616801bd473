"""The whole session runs in float64, where oracles are compared; float32 is asked for by name."""

import jax

jax.config.update("jax_enable_x64", True)
