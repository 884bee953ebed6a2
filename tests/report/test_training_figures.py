import math

import numpy as np
import pytest
from PIL import Image
from tests.report.looking import pictures, shown_texts, stumbles

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue
from ntrm.report.drawing import IGNORED
from ntrm.report.training_figures import (
    WRONG,
    Example,
    curves_figure,
    draw_curves,
    draw_examples,
    error_map,
    examples_figure,
    moving_average,
)

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


def line_values(axes, label):
    return next(line for line in axes.lines if line.get_label().startswith(label)).get_xydata()


def test_every_line_shows_its_column_of_the_log(rows):
    losses, scores, rate = draw_curves(rows).axes
    for axes, label, key in (
        (losses, "training", "train_loss"),
        (losses, "validation", "val_loss"),
        (scores, "mean IoU", "val_iou"),
        (scores, "mean Dice", "val_dice"),
        (scores, "pixel accuracy", "val_accuracy"),
        (rate, "", "learning_rate"),
    ):
        expected = [(row["step"], row[key]) for row in rows if key in row]
        assert line_values(axes, label).tolist() == pytest.approx(np.array(expected)), key


def test_best_values_are_named(rows):
    figure = draw_curves(rows)
    words = " ".join(text.get_text() for axes in figure.axes[:2] for text in axes.get_legend().get_texts())
    best = min((row["val_loss"], row["step"]) for row in rows if "val_loss" in row)
    assert f"best {best[0]:.3f}\n  at step {best[1]:,}" in words
    highest = max((row["val_iou"], row["step"]) for row in rows if "val_iou" in row)
    assert f"best {highest[0]:.3f}\n  at step {highest[1]:,}" in words


def test_missing_none_and_nan_values_leave_gaps(rows):
    broken = [{**row, "train_loss": math.nan if k % 2 else None} for k, row in enumerate(rows)]
    figure = draw_curves([*broken, {"step": None, "train_loss": 1.0}, {}])
    assert [line.get_label().split("\n")[0] for line in figure.axes[0].lines] == ["_best", "validation"]


@pytest.mark.parametrize("count", [0, 1])
def test_a_run_that_has_just_begun_can_be_drawn(rows, count):
    figure = draw_curves(rows[:count])
    assert sum("no values yet" in text for text, _ in shown_texts(figure)) == 3 - 2 * count
    assert not stumbles(figure)


def test_long_logs_are_averaged_except_for_the_learning_rate(random):
    rows = [{"step": k, "train_loss": float(random.random()), "learning_rate": float(k > 150)} for k in range(400)]
    losses, _, rate = draw_curves(rows).axes
    assert len(losses.lines) == 2
    assert len(rate.lines) == 1
    values = np.array([row["train_loss"] for row in rows])
    expected = [values[max(0, k - 5) : k + 5].mean() for k in range(400)]
    assert losses.lines[1].get_ydata() == pytest.approx(np.array(expected))


def test_moving_average_against_a_loop(random):
    values, span = random.random(50), int(random.integers(1, 5)) * 2 + 1
    expected = [values[max(0, k - span // 2) : k + span // 2 + 1].mean() for k in range(50)]
    assert moving_average(values, span) == pytest.approx(np.array(expected))


def test_losses_of_very_different_size_take_a_logarithmic_scale(rows):
    assert draw_curves(rows).axes[0].get_yscale() == "linear"
    assert draw_curves([{"step": 0, "train_loss": 500.0}, *rows]).axes[0].get_yscale() == "log"


def test_curves_can_be_read(rows):
    figure = draw_curves(rows)
    assert not stumbles(figure)


def test_curves_are_written_whole(rows, tmp_path):
    curves_figure(rows, tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (1275, 1230)
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_a_wrong_suffix_is_refused_before_anything_is_written(rows, tmp_path):
    with pytest.raises(UsageError, match=r"one of \.png"):
        curves_figure(rows, tmp_path / "curves.bmp")
    assert not list(tmp_path.iterdir())


def example(random, shape=(40, 60), name="BCC_1", truth=True):
    image = random.integers(256, size=(*shape, 3), dtype=np.uint8)
    masks = random.integers(12, size=(2, *shape), dtype=np.uint8)
    return Example(name, image, masks[0] if truth else None, masks[1])


def test_an_example_is_a_row_of_image_truth_prediction_and_errors(random):
    one = example(random)
    figure = draw_examples([one, example(random)], SKIN)
    shown = pictures(figure)
    assert len(shown) == 8
    assert np.array_equal(shown[0], one.image)
    assert np.array_equal(shown[1], SKIN.colourise(one.truth))
    assert np.array_equal(shown[2], SKIN.colourise(one.prediction))
    assert np.array_equal((shown[3] == WRONG).all(axis=2), one.truth != one.prediction)
    texts = [text for text, _ in shown_texts(figure)]
    assert f"BCC_1 · {(one.truth == one.prediction).mean():.1%} of the annotated pixels right" in texts
    assert all(any(text.startswith(name) for text in texts) for name in SKIN.names)


def test_ignored_pixels_are_neither_right_nor_wrong(random):
    one = example(random)
    truth = one.truth.copy()
    truth[:20] = IGNORE
    picture = error_map(one.image, truth, one.prediction, 12)
    assert not (picture[:20] == WRONG).all(axis=2).any()
    figure = draw_examples([Example("a", one.image, truth, one.prediction)], SKIN)
    assert (pictures(figure)[1][:20] == IGNORED).all()
    texts = [text for text, _ in shown_texts(figure)]
    assert "not annotated" in texts
    assert f"a · {(truth == one.prediction)[20:].mean():.1%} of the annotated pixels right" in texts
    nothing = draw_examples([Example("b", one.image, np.full_like(truth, IGNORE), one.prediction)], SKIN)
    assert "b · no annotated pixel" in [text for text, _ in shown_texts(nothing)]


def test_unknown_truth_leaves_its_places_empty_or_its_columns_out(random):
    mixed = draw_examples([example(random), example(random, truth=False)], SKIN)
    assert len(pictures(mixed)) == 6
    assert [text for text, _ in shown_texts(mixed)].count("not annotated") == 2
    assert len(pictures(draw_examples([example(random, truth=False)], SKIN))) == 2


def test_large_sections_are_shrunk_and_none_is_distorted(random):
    shapes = [(3000, 300), (200, 1500), (7, 5)]
    figure = draw_examples([example(random, shape) for shape in shapes], SKIN)
    for place, picture in enumerate(pictures(figure)):
        height, width = shapes[place // 4]
        assert max(picture.shape) <= 512
        assert picture.shape[0] / picture.shape[1] == pytest.approx(height / width, rel=0.02)
        assert figure.axes[place].get_aspect() == 1
        if place % 4 in (1, 2):
            assert SKIN.decode(np.asarray(picture)).strays == 0
    assert not stumbles(figure)


def test_long_names_and_other_schemas_fit(random):
    schema = LabelSchema(tuple(Tissue(k, f"tissue {k} of $ {'x' * 30}", "", (k, 9, 9)) for k in range(12)))
    figure = draw_examples([example(random, name="a very long $ name of a section " * 6)], schema)
    assert not stumbles(figure)


def test_examples_are_written_whole(random, tmp_path):
    examples_figure([example(random)], SKIN, tmp_path / "sheet" / "examples.png")
    with Image.open(tmp_path / "sheet" / "examples.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24)}
    assert {tissue.rgb for tissue in SKIN.tissues} | {WRONG} <= colours
    assert len(list((tmp_path / "sheet").iterdir())) == 1


def test_what_cannot_be_shown_is_refused(random):
    one = example(random)
    with pytest.raises(UsageError, match="no examples"):
        draw_examples([], SKIN)
    with pytest.raises(DataError, match="does not fit"):
        Example("a", one.image, one.truth[:-1], one.prediction)
    with pytest.raises(DataError, match="not an RGB picture"):
        Example("a", one.image[..., 0], None, one.prediction)
