import numpy as np
import pytest
from tests.report.looking import pictures, stumbles, words

from ntrm.core.labels import IGNORE, SKIN
from ntrm.report.drawing import IGNORED
from ntrm.report.picture_grids import (
    BROKEN,
    CORRECTED,
    STILL_WRONG,
    WRONG,
    Example,
    changes_of,
    examples_figure,
    improvement_figure,
    painted,
    qualitative_figure,
)

MODELS = ("DeepLabV3+", "U-Net (ResNet)", "MiT, trained like the others", "NTRM")


def example(random, shape=(40, 60), name="BCC_1", predictions=("prediction",)):
    image = random.integers(256, size=(*shape, 3), dtype=np.uint8)
    truth, *masks = random.integers(12, size=(1 + len(predictions), *shape), dtype=np.uint8)
    return Example(name, image, truth, dict(zip(predictions, masks, strict=True)))


def changed(random, shape=(48, 64)):
    return example(random, shape, predictions=("coarse", "final"))


def with_truth(one, truth, name="a"):
    return Example(name, one.image, truth, one.predictions)


def test_an_example_is_a_row_of_image_truth_prediction_and_errors(random):
    one = example(random)
    figure = examples_figure([one, example(random)], SKIN)
    image, truth, prediction, errors, *others = pictures(figure)
    assert len(others) == 4
    assert np.array_equal(image, one.image)
    assert np.array_equal(truth, SKIN.colourise(one.truth))
    right = one.truth == one.predictions["prediction"]
    assert np.array_equal(prediction, SKIN.colourise(one.predictions["prediction"]))
    assert np.array_equal((errors == WRONG).all(axis=2), ~right)
    assert f"BCC_1 · {right.mean():.1%} of the annotated pixels right" in words(figure)
    assert all(any(text.startswith(name) for text in words(figure)) for name in SKIN.names)


def test_ignored_pixels_are_neither_right_nor_wrong(random):
    one = example(random)
    prediction = one.predictions["prediction"]
    truth = one.truth.copy()
    truth[:20] = IGNORE
    figure = examples_figure([with_truth(one, truth), with_truth(one, np.full_like(truth, IGNORE), "b")], SKIN)
    assert (pictures(figure)[1][:20] == IGNORED).all()
    assert not (pictures(figure)[3][:20] == WRONG).all(axis=2).any()
    right = f"a · {(truth == prediction)[20:].mean():.1%} of the annotated pixels right"
    assert {"not annotated", right, "b · no annotated pixel"} <= set(words(figure))


def test_large_sections_are_shrunk_and_none_is_distorted(random):
    shapes = [(3000, 300), (200, 1500), (7, 5)]
    figure = examples_figure([example(random, shape) for shape in shapes], SKIN)
    for number, picture in enumerate(pictures(figure)):
        height, width = shapes[number // 4]
        assert max(picture.shape) <= 512
        assert picture.shape[0] / picture.shape[1] == pytest.approx(height / width, rel=0.02)
        assert figure.axes[number].get_aspect() == 1
        assert number % 4 not in (1, 2) or SKIN.decode(np.asarray(picture)).strays == 0
    assert not stumbles(figure)


def test_colours_of_change_on_every_case(random):
    image = random.integers(256, size=(1, 6, 3), dtype=np.uint8)
    truth = np.array([[0, 0, 0, 0, 0, IGNORE]], dtype=np.uint8)
    coarse = np.array([[0, 1, 0, 1, 1, 1]], dtype=np.uint8)
    final = np.array([[0, 0, 1, 1, 2, 2]], dtype=np.uint8)
    changes = changes_of(truth, coarse, final, 3)
    picture = painted(image, changes)[0]
    assert [tuple(colour) for colour in picture[1:5].tolist()] == [CORRECTED, BROKEN, STILL_WRONG, STILL_WRONG]
    assert (picture[[0, 5]] >= 200).all()
    assert [int(pixels.sum()) for pixels in changes.values()] == [1, 1, 2]


def test_an_improvement_is_a_row_of_five_with_its_counts(random):
    row = changed(random)
    coarse, final = row.predictions.values()
    figure = improvement_figure([row, changed(random, (900, 400))], SKIN)
    shown = pictures(figure)
    assert len(shown) == 10
    for picture, mask in zip(shown[1:4], (row.truth, coarse, final), strict=True):
        assert np.array_equal(picture, SKIN.colourise(mask))
    assert np.array_equal(shown[4], painted(row.image, changes_of(row.truth, coarse, final, 12)))
    before, after = coarse == row.truth, final == row.truth
    caption = next(text for text in words(figure) if text.startswith("BCC_1"))
    changes = {"corrected": ~before & after, "broken": before & ~after, "wrong before and after": ~before & ~after}
    for name, pixels in changes.items():
        assert f"{name} {pixels.sum():,} ({pixels.mean():.1%})" in caption
    assert {"image", "truth", "coarse", "final", "change", *changes} <= set(words(figure))
    assert not stumbles(figure)
    unknown = improvement_figure([with_truth(row, np.full_like(row.truth, IGNORE))], SKIN)
    assert any("corrected 0 (0.0%), broken 0 (0.0%)" in text for text in words(unknown))


@pytest.fixture
def windows(random):
    return [example(random, (40, 40), f"{cancer}_1 ({cancer})", MODELS) for cancer in ("BCC", "SCC", "IEC")]


def test_rows_are_windows_and_columns_image_truth_and_models(windows):
    figure = qualitative_figure(windows, SKIN)
    shown = pictures(figure)
    assert len(shown) == 3 * (2 + len(MODELS))
    for number, row in enumerate(windows):
        image, *masks = shown[number * 6 : number * 6 + 6]
        assert np.array_equal(image, row.image)
        for picture, mask in zip(masks, (row.truth, *row.predictions.values()), strict=True):
            assert np.array_equal(picture, SKIN.colourise(mask))
    assert {"image", "truth", *MODELS} <= set(words(figure))
    right = (windows[0].predictions["NTRM"] == windows[0].truth).mean()
    assert any(text.startswith("BCC_1 (BCC)") and text.endswith(f"NTRM {right:.1%}") for text in words(figure))
    assert not stumbles(figure)
