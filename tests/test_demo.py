"""The demo is what a newcomer sees first: it must run, and its numbers must mean what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli.main import application
from bayestream.experiments import piecewise


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(piecewise, "TASKS", 2)
    monkeypatch.setattr(piecewise, "LENGTH", 30)


def test_errors_are_rmse_on_the_current_task_before_each_step(short):
    outcome = piecewise.trial({"method": "vdekf", "drift": 1e-3}, 0)
    assert outcome.error.shape == (2, 30)
    model = bs.models.mlp([1, 50, 1], activation=jax.nn.relu)
    fit = jax.vmap(lambda x: model.apply(model.init(jax.random.key(0)), x)[0])(
        jnp.asarray(piecewise.GRID)[:, None]
    )
    first = np.sqrt(np.mean((fit - piecewise.truth(0)[0]) ** 2))
    np.testing.assert_allclose(outcome.error[0, 0], first, rtol=1e-6)
    np.testing.assert_allclose(outcome.overall, np.sqrt(np.mean(outcome.error**2)))


def test_the_demo_prints_a_table_and_draws_two_pictures(tmp_path):
    result = CliRunner().invoke(application(), ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for word in ("lofi", "fcekf", "fdekf", "vdekf", "all", "µs a step"):
        assert word in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"fits.png", "errors.png"}
    assert all(path.stat().st_size > 20_000 for path in tmp_path.iterdir())
