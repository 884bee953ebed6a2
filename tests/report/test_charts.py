import math

import numpy as np
import pytest
from tests.reference.calibration_counts import calibration_counts
from tests.report.looking import stumbles, words

from ntrm.core.errors import DataError
from ntrm.core.labels import SKIN
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.metrics.confusion import confusion
from ntrm.report.charts import Estimate, ablation_figure, confusion_figure, curves_figure, reliability_figure

KEYS = ("train_loss", "val_loss", "val_iou", "val_dice", "val_accuracy", "learning_rate")


@pytest.fixture
def rows(random):
    """A log as training writes it: validation now and then, learning rate always."""
    return [
        {
            "step": step,
            "epoch": step / 40,
            "train_loss": float(random.random() + 0.5),
            "learning_rate": 1e-4 * 0.5 ** (step // 60),
            **({key: float(random.random() / 2 + 0.2) for key in KEYS[1:5]} if step % 20 == 0 else {}),
        }
        for step in range(10, 201, 10)
    ]


def test_every_line_shows_its_column_of_the_log(rows):
    figure = curves_figure(rows)
    losses, scores, rate = figure.axes
    for axes, label, key in (
        (losses, "training", "train_loss"),
        (losses, "validation", "val_loss"),
        (scores, "mean IoU", "val_iou"),
        (scores, "mean Dice", "val_dice"),
        (scores, "pixel accuracy", "val_accuracy"),
        (rate, "", "learning_rate"),
    ):
        line = next(line for line in axes.lines if line.get_label().startswith(label))
        expected = [(row["step"], row[key]) for row in rows if key in row]
        assert line.get_xydata().tolist() == pytest.approx(np.array(expected)), key
    legends = " ".join(text.get_text() for axes in (losses, scores) for text in axes.get_legend().get_texts())
    for choose, key in ((min, "val_loss"), (max, "val_iou")):
        value, step = choose((row[key], row["step"]) for row in rows if key in row)
        assert f"best {value:.3f}\n  at step {step:,}" in legends
    assert not stumbles(figure)
    assert losses.get_yscale() == "linear"
    assert curves_figure([{"step": 0, "train_loss": 500.0}, *rows]).axes[0].get_yscale() == "log"


def test_missing_none_and_nan_values_leave_gaps(rows):
    broken = [{**row, "train_loss": math.nan if k % 2 else None} for k, row in enumerate(rows)]
    figure = curves_figure([*broken, {"step": None, "train_loss": 1.0}, {}])
    assert [line.get_label().split("\n")[0] for line in figure.axes[0].lines] == ["_best", "validation"]
    for count in (0, 1):  # a run that has just begun
        figure = curves_figure(rows[:count])
        assert words(figure).count("no values yet") == 3 - 2 * count
        assert not stumbles(figure)


def test_long_logs_are_averaged_except_for_the_learning_rate(random):
    rows = [{"step": k, "train_loss": float(random.random()), "learning_rate": float(k > 150)} for k in range(400)]
    losses, _, rate = curves_figure(rows).axes
    assert (len(losses.lines), len(rate.lines)) == (2, 1)
    values = np.array([row["train_loss"] for row in rows])
    expected = [values[max(0, k - 5) : k + 5].mean() for k in range(400)]
    assert losses.lines[1].get_ydata() == pytest.approx(np.array(expected))


@pytest.fixture
def counts(random):
    """FOL is neither there nor predicted; GLD is predicted, but not there."""
    present = [k for k in range(12) if SKIN.names[k] not in ("FOL", "GLD")]
    truth = random.choice(present, size=4000)
    guess = np.where(random.random(4000) < 0.3, random.choice([*present, SKIN.index("GLD")], size=4000), truth)
    return confusion(truth, guess, 12)


def test_confusions_are_fractions_of_the_row_and_absent_tissues_are_greyed(counts):
    figure = confusion_figure(counts, SKIN)
    axes = figure.axes[0]
    assert np.allclose(axes.images[0].get_array(), counts / np.maximum(counts.sum(axis=1), 1)[:, None])
    shares = {f"{row.sum() / counts.sum():.1%}" if row.any() else "absent" for row in counts}
    assert shares <= set(words(figure))
    grey = ~np.ma.getmaskarray(axes.images[1].get_array())
    glands, follicles = SKIN.index("GLD"), SKIN.index("FOL")
    assert grey[[glands, follicles]].all()
    assert grey[:, follicles].all()
    others = [k for k in range(12) if k not in (glands, follicles)]
    assert not grey[np.ix_(others, [*others, glands])].any()


def test_no_annotated_pixel_is_said_and_other_classes_are_refused(counts):
    assert "no annotated pixel" in words(confusion_figure(np.zeros((12, 12), dtype=np.int64), SKIN))
    assert "no annotated pixel" in words(reliability_figure(CalibrationCounts.none()))
    with pytest.raises(DataError, match="do not fit the classes"):
        confusion_figure(counts[:3, :3], SKIN)


def test_points_are_the_bins_mean_confidence_and_accuracy(random):
    probabilities = random.dirichlet(np.ones(5) * 0.3, size=3000).T
    truth = random.integers(5, size=3000)
    flatter = probabilities**0.5 / (probabilities**0.5).sum(axis=0)
    calibrations = [calibration_counts(p, truth, axis=0, bins=10) for p in (probabilities, flatter)]
    figure = reliability_figure(*calibrations)
    diagram, pixels = figure.axes
    for line, stairs, counts in zip(diagram.lines[1:], pixels.patches, calibrations, strict=True):
        kept = counts.pixels > 0
        expected = [counts.confidence[kept] / counts.pixels[kept], counts.correct[kept] / counts.pixels[kept]]
        assert np.allclose(line.get_xydata().T, expected)
        assert np.allclose(stairs.get_data().values, counts.pixels / counts.pixels.sum())
        assert np.allclose(stairs.get_data().edges, np.linspace(0, 1, 11))
        said = f"calibration error {counts.expected_error:.3f}, Brier {counts.brier:.3f}"
        assert line.get_label().endswith(f" calibration: {said}")
    assert not stumbles(figure)
    assert not any("after" in text for text in words(reliability_figure(calibrations[0])))


def test_the_ablations_points_and_intervals_are_the_numbers(random):
    long = {f"variant {k} $ of a long name that needs two lines": 0.6 + random.random() / 5 for k in range(6)}
    variants = {name: Estimate(mean, mean - 0.03, mean + 0.02) for name, mean in long.items()}
    variants |= {"ntrm-paper": Estimate(0.7, 0.69, 0.72), "one seed": Estimate(0.66)}
    figure = ablation_figure(variants, measure="mean IoU", reference="ntrm-paper", note="three seeds")
    axes = figure.axes[0]
    for row, (score, drawn) in enumerate(zip(variants.values(), axes.containers, strict=True)):
        point, _, (bars,) = drawn
        assert point.get_xydata()[0] == pytest.approx([score.mean, row])
        ends = bars.get_segments()[0][:, 0]
        assert ends == pytest.approx([score.low or score.mean, score.high or score.mean])
    assert {text.get_text() for text in axes.texts} == {f"{score.mean:.3f}" for score in variants.values()}
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [0.7]
    assert not stumbles(figure)
