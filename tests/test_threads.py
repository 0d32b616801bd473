"""Factorisations do not wait for threads, whatever else the machine does."""

import json
import os
import subprocess
import sys

import pytest

USE = """
import json, numpy as np
from threadpoolctl import threadpool_info

def threads():
    return {lib["filepath"]: lib["num_threads"] for lib in threadpool_info()}

before = threads()
import jax, bayestream as bs
learner = bs.lrvga(bs.models.mlp([1, 2, 1]), bs.likelihoods.gaussian(0.1), rank=2)
bs.step(learner, learner.init(jax.random.key(0)), np.ones(1), np.ones(1), key=jax.random.key(1))
print(json.dumps([before, threads()]))
"""


@pytest.mark.parametrize("given", [None, pytest.param("2", marks=pytest.mark.slow)])
def test_an_estimator_takes_the_threads_of_scipys_openblas_alone_unless_they_are_given(given):
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    env |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    ran = subprocess.run(
        [sys.executable, "-c", USE], env=env, capture_output=True, text=True, check=True
    )
    before, after = json.loads(ran.stdout)
    assert {path: after[path] for path in before} == before
    of_scipy = [count for path, count in after.items() if "scipy.libs" in path]
    if not of_scipy:
        pytest.skip("scipy brings no OpenBLAS here")
    assert of_scipy == [1 if given is None else min(2, os.cpu_count())]
