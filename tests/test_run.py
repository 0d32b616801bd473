"""One order of predict, record and update, whatever the stream is made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
from bayestream.progress import Progress

RNG = np.random.default_rng(0)
COUNT = 1234  # not a multiple of a chunk
XS = RNG.normal(size=(COUNT, 2))
YS = np.sin(XS.sum(axis=1, keepdims=True)) + 0.1 * RNG.normal(size=(COUNT, 1))
MODEL = bs.models.mlp([2, 5, 1])
LEARNER = bs.lofi(MODEL, bs.likelihoods.gaussian(0.01), rank=3, decay=0.999, drift=1e-4)
START = LEARNER.init(jax.random.key(0))


def assert_equal(one, other) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def by_hand(xs, ys):
    """Predict, score, update, in a plain loop."""

    @jax.jit
    def step(state, x, y):
        state = LEARNER.predict(state)
        return LEARNER.update(state, x, y), MODEL.apply(LEARNER.mean(state), x)

    state, predictions = START, []
    for x, y in zip(xs, ys, strict=True):
        state, prediction = step(state, x, y)
        predictions.append(prediction)
    return state, np.array(predictions)


def test_run_is_predict_then_record_then_update():
    expected_state, expected = by_hand(XS[:40], YS[:40])
    state, records = bs.run(LEARNER, START, (XS[:40], YS[:40]))
    np.testing.assert_allclose(records["prediction"], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(LEARNER.mean(state), LEARNER.mean(expected_state), rtol=1e-9)
    assert int(state.step) == 40


def test_arrays_streams_and_iterables_give_the_same_numbers():
    stream = bs.Stream(bs.Example(XS, YS, np.zeros(COUNT, int)))
    expected = bs.run(LEARNER, START, (XS, YS))
    for other in (
        (jnp.asarray(XS), jnp.asarray(YS)),
        stream,
        iter(stream),
        zip(XS, YS, strict=True),
        [(x.tolist(), y.tolist()) for x, y in zip(XS, YS, strict=True)],
    ):
        state, records = bs.run(LEARNER, START, other)
        assert_equal((state, records.values), (expected[0], expected[1].values))


def test_two_runs_in_a_row_are_one_run():
    whole, records = bs.run(LEARNER, START, (XS, YS))
    half, first = bs.run(LEARNER, START, (XS[:500], YS[:500]))
    both, second = bs.run(LEARNER, half, (XS[500:], YS[500:]))
    joined = np.concatenate([first["prediction"], second["prediction"]])
    np.testing.assert_allclose(joined, records["prediction"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(LEARNER.mean(both), LEARNER.mean(whole), rtol=1e-9)


def test_step_by_step_is_run():
    state, predictions = START, []
    for x, y in zip(XS[:30], YS[:30], strict=True):
        state, kept = bs.step(LEARNER, state, x, y)
        predictions.append(kept["prediction"])
    expected, records = bs.run(LEARNER, START, (XS[:30], YS[:30]))
    np.testing.assert_allclose(predictions, records["prediction"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(LEARNER.mean(state), LEARNER.mean(expected), rtol=1e-9)


@pytest.mark.parametrize("kind", [jnp.array, np.array], ids=["jax", "numpy"])
def test_the_callers_state_survives(kind):
    state = jax.tree.map(kind, START)
    before = jax.tree.map(np.array, state)
    bs.run(LEARNER, state, (XS, YS))
    assert_equal(before, state)


def test_only_what_record_asks_for_is_kept():
    _, nothing = bs.run(LEARNER, START, (XS[:9], YS[:9]), record=None)
    assert nothing.values is None

    def trace(estimator, state, example):
        return {"step": state.step, "task": example.task}

    tasks = np.arange(9) // 3
    _, kept = bs.run(LEARNER, START, bs.Stream(bs.Example(XS[:9], YS[:9], tasks)), record=trace)
    assert_equal(kept.values, {"step": np.arange(1, 10), "task": tasks})


def test_the_default_record_scores_before_the_label_is_learnt():
    ys = YS[:6].copy()
    ys[3] = np.nan
    _, records = bs.run(LEARNER, START, (XS[:6], ys))
    error = np.asarray(records["prediction"]) - ys
    expected = -0.5 * (error**2 / 0.01 + np.log(2 * np.pi * 0.01))[:, 0]
    np.testing.assert_allclose(records["log_density"], expected, rtol=1e-9)


def test_an_empty_stream_changes_nothing():
    state, records = bs.run(LEARNER, START, (XS[:0], YS[:0]))
    assert_equal(state, START)
    assert records["prediction"].shape == (0, 1)
    assert records.skipped == ()


def test_random_updates_need_a_key_and_follow_it():
    learner = bs.lofi_spherical(
        bs.models.mlp([2, 5, 3]),
        bs.likelihoods.gaussian(0.1),
        rank=2,
        projection=bs.estimators.orthogonal,
    )
    start, ys = learner.init(jax.random.key(0)), RNG.normal(size=(COUNT, 3))
    with pytest.raises(ValueError, match=r"^key must be a PRNG key"):
        bs.run(learner, start, (XS, ys))
    one, _ = bs.run(learner, start, (XS, ys), key=jax.random.key(1))
    again, _ = bs.run(learner, start, zip(XS, ys, strict=True), key=jax.random.key(1))
    other, _ = bs.run(learner, start, (XS, ys), key=jax.random.key(2))
    assert_equal(one, again)
    assert not np.allclose(learner.mean(one), learner.mean(other))


def spoiled() -> tuple[np.ndarray, np.ndarray]:
    xs, ys = XS[:40].copy(), YS[:40].copy()
    xs[3, 1], xs[17, 0], ys[30, 0] = np.nan, np.inf, -np.inf
    return xs, ys


def test_bad_examples_are_refused_by_position():
    with pytest.raises(ValueError, match=r"^example 3 of the stream: x must hold finite numbers"):
        bs.run(LEARNER, START, spoiled())
    with pytest.raises(ValueError, match=r"^example 0 .*: y must be finite numbers, got"):
        bs.run(LEARNER, START, (XS[:1], np.array([[np.inf]])))


def test_bad_examples_are_skipped_and_counted():
    good = np.setdiff1d(np.arange(40), [3, 17, 30])
    expected, kept = bs.run(LEARNER, START, (XS[good], YS[good]))
    state, records = bs.run(LEARNER, START, spoiled(), on_bad="skip")
    assert [skipped.position for skipped in records.skipped] == [3, 17, 30]
    assert_equal((state, records.values), (expected, kept.values))


def test_items_of_the_wrong_shape_are_skipped_or_refused():
    items = [(XS[0], YS[0]), (np.ones(3), YS[1]), (XS[2], YS[2]), ("a word", YS[3])]
    state, records = bs.run(LEARNER, START, items, on_bad="skip")
    assert [skipped.position for skipped in records.skipped] == [1, 3]
    assert "x must have shape (2,), got (3,)" in records.skipped[0].reason
    assert int(state.step) == 2
    with pytest.raises(ValueError, match=r"^example 1 of the stream: x must have shape \(2,\)"):
        bs.run(LEARNER, START, items)


def test_a_class_that_does_not_exist_is_bad_and_a_missing_one_is_not():
    learner = bs.vdekf(bs.models.mlp([2, 3]), bs.likelihoods.categorical())
    start, ys = learner.init(jax.random.key(0)), np.array([0, 3, -1, 2])
    state, records = bs.run(learner, start, (XS[:4], ys), on_bad="skip")
    assert [skipped.position for skipped in records.skipped] == [1]
    assert "a class number from 0" in records.skipped[0].reason
    assert int(state.step) == 3


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ((XS, YS[:5]), "x and y must be equally many, got 1234 of x and 5 of y"),
        ((XS[:, :1], YS), r"x must have shape \(2,\), got \(1,\)"),
        ((XS, np.ones((COUNT, 2))), r"y must have shape \(1,\) or \(\), got \(2,\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_anything_runs(stream, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        bs.run(LEARNER, START, stream, on_bad="skip")


def test_step_refuses_bad_input():
    with pytest.raises(ValueError, match=r"^x must hold finite numbers"):
        bs.step(LEARNER, START, np.array([np.nan, 0.0]), np.ones(1))
    with pytest.raises(ValueError, match=r"^x must have shape \(2,\), got \(3,\)"):
        bs.step(LEARNER, START, np.ones(3), np.ones(1))
    with pytest.raises(ValueError, match=r"^y must be .*, got \[inf\]"):
        bs.step(LEARNER, START, np.ones(2), np.array([np.inf]))
    with pytest.raises(TypeError, match=r"^x must hold real numbers, got dtype <U1"):
        bs.step(LEARNER, START, ["1", "2"], np.ones(1))
    other = bs.lofi(MODEL, bs.likelihoods.gaussian(0.01), rank=2)
    with pytest.raises(ValueError, match=r"^state must come from this learner"):
        bs.step(LEARNER, other.init(jax.random.key(0)), np.ones(2), np.ones(1))


def test_unknown_choices_are_refused_with_the_nearest_name():
    with pytest.raises(
        ValueError, match=r"^on_bad must be one of raise, skip, got 'skp'\. .*'skip'"
    ):
        bs.run(LEARNER, START, (XS, YS), on_bad="skp")
    with pytest.raises(ValueError, match=r"^method must be one of .*, got 'lofy'\. .*'lofi'"):
        bs.make("lofy", MODEL, bs.likelihoods.gaussian(1.0))


@pytest.mark.parametrize(
    ("rank", "error"), [(-1, ValueError), (22, ValueError), (2.5, TypeError), (True, TypeError)]
)
@pytest.mark.parametrize("method", ["lofi", "lofi_spherical"])
def test_a_rank_outside_zero_to_the_number_of_parameters_is_refused(method, rank, error):
    with pytest.raises(error, match=rf"^rank must be a whole number from 0 to 21 .*got {rank}"):
        bs.make(method, MODEL, bs.likelihoods.gaussian(1.0), rank=rank)


def test_long_work_draws_a_bar_and_short_work_is_silent(capsys, monkeypatch):
    clock = iter([0.0, 0.5, 2.0, 2.0])
    monkeypatch.setattr("bayestream.progress.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress("learning", total=100, show=True) as bar:
        bar.advance(10)
        assert capsys.readouterr().err == ""
        bar.advance(40)
    assert "░ 50/100 · 25/s · 2 s left" in capsys.readouterr().err


def test_long_work_that_is_shown_in_a_file_writes_a_line_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, 5.0, 12.0, 15.0, 20.0])
    monkeypatch.setattr("bayestream.progress.time.monotonic", lambda: next(clock))
    with Progress("tuning", total=100, show=True) as bar:
        for _ in range(3):
            bar.advance(24)
    assert capsys.readouterr().err.splitlines() == [
        "tuning 48/100 · 4/s · 13 s left",
        "tuning 72/100 · 4/s · 8 s left",
    ]


def test_delayed_labels_are_learnt_exactly_when_they_arrive():
    """A plain loop over steps: predict, record, then whatever arrives now, oldest first."""
    count = 90
    delays = np.random.default_rng(3).poisson(2.0, count)
    state, expected = START, []
    predict, update, apply = map(jax.jit, (LEARNER.predict, LEARNER.update, MODEL.apply))
    for now in range(count):
        state = predict(state)
        expected.append(apply(LEARNER.mean(state), XS[now])[0])
        for then in range(now + 1):
            if then + delays[then] == now:
                state = update(state, XS[then], YS[then])
    stream = bs.streams.delayed_labels(bs.Stream(bs.Example(XS[:count], YS[:count])), delays)
    for form in (stream, iter(stream)):
        found, records = bs.run(LEARNER, START, form)
        np.testing.assert_allclose(records["prediction"][:, 0], expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(LEARNER.mean(found), LEARNER.mean(state), rtol=1e-9)
        assert int(found.step) == count


def test_a_label_that_arrives_at_once_is_not_delayed():
    stream = bs.Stream(bs.Example(XS, YS))
    late = stream.examples._replace(delay=np.where(np.arange(COUNT) == 700, COUNT, 0))
    without = np.where(np.arange(COUNT)[:, None] == 700, np.nan, YS)
    expected, _ = bs.run(LEARNER, START, (XS, without))
    found, _ = bs.run(LEARNER, START, bs.Stream(late))  # delays begin in the second chunk
    np.testing.assert_allclose(LEARNER.mean(found), LEARNER.mean(expected), rtol=1e-9)


def test_a_label_may_arrive_in_a_chunk_that_has_no_delays():
    delay = np.where(np.arange(COUNT) == 490, 20, 0)
    found, _ = bs.run(LEARNER, START, bs.Stream(bs.Example(XS, YS, delay=delay)))
    state, update = START, jax.jit(LEARNER.update)
    for now in range(COUNT):
        state = LEARNER.predict(state)
        for then in {490: [], 510: [490, 510]}.get(now, [now]):
            state = update(state, XS[then], YS[then])
    np.testing.assert_allclose(LEARNER.mean(found), LEARNER.mean(state), rtol=1e-7)
    assert int(found.step) == COUNT


def test_a_chunk_of_bad_examples_does_not_disturb_the_waiting():
    bad = np.arange(COUNT) // 500 == 1  # the whole second chunk
    xs = np.where(bad[:, None], np.nan, XS)
    delay = np.where(np.arange(COUNT) == 490, 20, 0)
    found, records = bs.run(
        LEARNER, START, bs.Stream(bs.Example(xs, YS, delay=delay)), on_bad="skip"
    )
    good = bs.Stream(bs.Example(XS[~bad], YS[~bad], delay=delay[~bad]))
    expected, _ = bs.run(LEARNER, START, good)
    assert len(records.skipped) == 500
    np.testing.assert_allclose(LEARNER.mean(found), LEARNER.mean(expected), rtol=1e-7)


def test_a_delay_must_be_a_whole_number():
    with pytest.raises(ValueError, match="steps must be whole numbers"):
        bs.streams.delayed_labels(bs.Stream(bs.Example(XS, YS)), -1)
    with pytest.raises(ValueError, match="example 0 of the stream: delay must be a whole number"):
        bs.run(LEARNER, START, [bs.Example(XS[0], YS[0], 0, 0.5)])
    with pytest.raises(ValueError, match="delay must be a whole number, 0 or above, got inf"):
        bs.run(LEARNER, START, [bs.Example(XS[0], YS[0], 0, np.inf)])
