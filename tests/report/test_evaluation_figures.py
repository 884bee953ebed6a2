import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Annotation
from PIL import Image
from tests.report.looking import pictures, shown_texts, stumbles

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue
from ntrm.metrics.calibration import CalibrationCounts, calibration_counts
from ntrm.metrics.confusion import confusion
from ntrm.report.evaluation_figures import (
    BROKEN,
    CORRECTED,
    STILL_WRONG,
    Improvement,
    change_counts,
    change_map,
    confusion_figure,
    draw_confusion,
    draw_improvement,
    draw_reliability,
    draw_uncertainty,
    improvement_figure,
    reliability_figure,
    uncertainty_figure,
)


@pytest.fixture
def counts(random):
    """FOL is neither there nor predicted; GLD is predicted, but not there."""
    present = [k for k in range(12) if SKIN.names[k] not in ("FOL", "GLD")]
    truth = random.choice(present, size=4000)
    guess = np.where(random.random(4000) < 0.3, random.choice([*present, SKIN.index("GLD")], size=4000), truth)
    return confusion(truth, guess, 12)


def test_cells_are_shares_of_the_true_tissue(counts):
    axes = draw_confusion(counts, SKIN).axes[0]
    present = counts.sum(axis=1) > 0
    expected = counts[present] / counts[present].sum(axis=1, keepdims=True)
    assert np.allclose(axes.images[0].get_array()[present], expected)
    inside = [text for text in axes.texts if text.get_position()[0] < 11.5 and not isinstance(text, Annotation)]
    for text in inside:
        column, row = map(int, text.get_position())
        assert float(text.get_text()) == pytest.approx(counts[row, column] / counts[row].sum(), abs=0.00501)
    assert len(inside) == np.count_nonzero(expected >= 0.005)


def test_absent_tissues_are_greyed(counts):
    axes = draw_confusion(counts, SKIN).axes[0]
    grey = ~np.ma.getmaskarray(axes.images[1].get_array())
    glands, follicles = SKIN.index("GLD"), SKIN.index("FOL")
    assert grey[[glands, follicles]].all()
    assert grey[:, follicles].all()
    others = [k for k in range(12) if k not in (glands, follicles)]
    assert not grey[np.ix_(others, [*others, glands])].any()
    shades = [max(to_rgb(label.get_color())) for label in axes.get_yticklabels()]
    assert [k for k, shade in enumerate(shades) if shade > 0.5] == [glands, follicles]
    shades = [max(to_rgb(label.get_color())) for label in axes.get_xticklabels()]
    assert [k for k, shade in enumerate(shades) if shade > 0.5] == [follicles]
    assert [text.get_text() for text in axes.texts].count("absent") == 2


def test_shares_of_all_pixels_stand_beside_the_rows(counts):
    texts = [text for text, _ in shown_texts(draw_confusion(counts, SKIN))]
    for row in counts[counts.sum(axis=1) > 0]:
        assert f"{row.sum() / counts.sum():.1%}" in texts


@pytest.mark.parametrize("size", [1, 2, 3, 12, 20])
def test_any_number_of_classes_can_be_read(random, size):
    schema = LabelSchema(
        tuple(Tissue(k, f"class {k}" if size != 12 else SKIN.names[k], "", (k, 0, 0)) for k in range(size))
    )
    figure = draw_confusion(random.integers(1, 1000, size=(size, size)), schema)
    assert not stumbles(figure)


def test_no_annotated_pixel_is_said():
    figure = draw_confusion(np.zeros((12, 12), dtype=np.int64), SKIN)
    assert "no annotated pixel" in [text for text, _ in shown_texts(figure)]


def test_counts_of_other_classes_are_refused(counts):
    with pytest.raises(DataError, match="do not fit the classes"):
        draw_confusion(counts[:3, :3], SKIN)


def test_colours_of_change_on_every_case():
    truth = np.array([[0, 0, 0, 0, 0, IGNORE]], dtype=np.uint8)
    coarse = np.array([[0, 1, 0, 1, 1, 1]], dtype=np.uint8)
    final = np.array([[0, 0, 1, 1, 2, 2]], dtype=np.uint8)
    white = (255, 255, 255)
    expected = [white, CORRECTED, BROKEN, STILL_WRONG, STILL_WRONG, white]
    assert [tuple(colour) for colour in change_map(truth, coarse, final, 3)[0].tolist()] == expected
    counted = change_counts(truth, coarse, final, 3)
    assert (counted.corrected, counted.broken, counted.still_wrong, counted.pixels) == (1, 1, 2, 5)


def test_what_stays_right_shows_the_pale_image_without_any_colour_of_change(random):
    image = random.integers(256, size=(30, 30, 3), dtype=np.uint8)
    truth = random.integers(3, size=(30, 30), dtype=np.uint8)
    picture = change_map(truth, truth, truth, 3, image)
    assert (picture[..., 0] == picture[..., 1]).all()
    assert picture.min() >= 200
    assert picture.std() > 1


def simulated(colour, kind):
    """The colour as it looks without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1)."""
    matrices = {
        "none": np.eye(3),
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    }
    value = np.array(colour) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrices[kind]) @ linear, 0, 1)
    return np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("kind", ["none", "deutan", "protan"])
def test_the_colours_of_change_are_told_apart_without_red_or_green(kind):
    from skimage.color import rgb2lab

    seen = [
        rgb2lab(simulated(colour, kind).reshape(1, 1, 3)).ravel()
        for colour in (CORRECTED, BROKEN, STILL_WRONG, (200, 200, 200), (255, 255, 255))
    ]
    for place, one in enumerate(seen[:3]):
        for other in seen[place + 1 :]:
            assert np.linalg.norm(one - other) > 20


def improvement(random, shape=(48, 64), name="BCC_1"):
    image = random.integers(256, size=(*shape, 3), dtype=np.uint8)
    return Improvement(name, image, *random.integers(12, size=(3, *shape), dtype=np.uint8))


def test_an_improvement_is_a_row_of_five_with_its_counts(random):
    row = improvement(random)
    figure = draw_improvement([row, improvement(random, (900, 400))], SKIN)
    shown = pictures(figure)
    assert len(shown) == 10
    for place, mask in ((1, row.truth), (2, row.coarse), (3, row.final)):
        assert np.array_equal(shown[place], SKIN.colourise(mask))
    assert np.array_equal(shown[4], change_map(row.truth, row.coarse, row.final, 12, row.image))
    before, after = row.coarse == row.truth, row.final == row.truth
    texts = [text for text, _ in shown_texts(figure)]
    corrected, broken, wrong = (int(n.sum()) for n in (~before & after, before & ~after, ~before & ~after))
    caption = next(text for text in texts if text.startswith("BCC_1"))
    for words, count in (("corrected", corrected), ("broken", broken), ("wrong before and after", wrong)):
        assert f"{words} {count:,} ({count / row.truth.size:.1%})" in caption
    assert {"image", "truth", "coarse", "final", "change", "corrected", "broken", "wrong before and after"} <= set(
        texts
    )
    assert not stumbles(figure)


def test_only_ignored_pixels_give_zeros(random):
    row = improvement(random)
    unknown = Improvement("a", row.image, np.full_like(row.truth, IGNORE), row.coarse, row.final)
    texts = [text for text, _ in shown_texts(draw_improvement([unknown], SKIN))]
    assert any("corrected 0 (0.0%), broken 0 (0.0%)" in text for text in texts)


def test_figures_are_written_whole(random, counts, tmp_path):
    improvement_figure([improvement(random)], SKIN, tmp_path / "improvement.png")
    confusion_figure(counts, SKIN, tmp_path / "confusion.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confusion.png", "improvement.png"]
    with Image.open(tmp_path / "improvement.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24)}
        assert {CORRECTED, BROKEN, STILL_WRONG} <= colours
        assert picture.width > 1500


def test_what_cannot_be_shown_is_refused(random):
    row = improvement(random)
    with pytest.raises(UsageError, match="no sections"):
        draw_improvement([], SKIN)
    with pytest.raises(DataError, match="does not fit"):
        Improvement("a", row.image, row.truth, row.coarse[1:], row.final)


@pytest.fixture
def both(random):
    probabilities = random.dirichlet(np.ones(5) * 0.3, size=3000).T
    truth = random.integers(5, size=3000)
    flatter = probabilities**0.5 / (probabilities**0.5).sum(axis=0)
    return [calibration_counts(p, truth, axis=0, bins=10) for p in (probabilities, flatter)]


def test_points_are_the_bins_mean_confidence_and_accuracy(both):
    before, after = both
    diagram, pixels = draw_reliability(before, after).axes
    for line, counts in zip(diagram.lines[1:], both, strict=True):
        kept = counts.pixels > 0
        expected = [counts.confidence[kept] / counts.pixels[kept], counts.correct[kept] / counts.pixels[kept]]
        assert np.allclose(line.get_xydata().T, expected)
    for stairs, counts in zip(pixels.patches, both, strict=True):
        assert np.allclose(stairs.get_data().values, counts.pixels / counts.pixels.sum())
        assert np.allclose(stairs.get_data().edges, np.linspace(0, 1, 11))
    words = [text.get_text() for text in diagram.get_legend().get_texts()]
    assert words[1:] == [
        f"{when} calibration: calibration error {counts.expected_error:.3f}, Brier {counts.brier:.3f}"
        for when, counts in (("before", before), ("after", after))
    ]


def test_before_alone(both):
    figure = draw_reliability(both[0])
    assert len(figure.axes[0].lines) == 2
    assert not any("after" in text for text, _ in shown_texts(figure))


def test_no_pixel_is_said(both):
    figure = draw_reliability(CalibrationCounts.none(), None)
    assert "no annotated pixel" in [text for text, _ in shown_texts(figure)]


def test_reliability_can_be_read(both):
    figure = draw_reliability(*both)
    assert not stumbles(figure)


@pytest.fixture(params=[(40, 90), (90, 40), (33, 1200)])
def section(request, random):
    shape = request.param
    image = random.integers(256, size=(*shape, 3), dtype=np.uint8)
    mask = random.integers(12, size=shape, dtype=np.uint8)
    confidence, entropy = random.random((2, *shape)).astype(np.float32)
    return "BCC_1", image, mask, confidence, entropy, SKIN


def test_image_mask_confidence_and_entropy_on_scales_from_0_to_1(section):
    figure = draw_uncertainty(*section)
    shown = [image for axes in figure.axes for image in axes.images]
    _, image, mask, confidence, entropy, _ = section
    if max(mask.shape) <= 512:
        assert np.array_equal(shown[0].get_array(), image)
        assert np.array_equal(shown[1].get_array(), SKIN.colourise(mask))
        assert np.allclose(shown[2].get_array(), confidence)
        assert np.allclose(shown[3].get_array(), entropy)
    assert [picture.get_clim() for picture in shown[2:4]] == [(0, 1), (0, 1)]
    texts = [text for text, _ in shown_texts(figure)]
    assert f"confidence (mean {confidence.mean():.2f})" in texts
    assert f"entropy (mean {entropy.mean():.2f})" in texts
    assert not stumbles(figure)


def test_pictures_keep_their_shape(section):
    found = pictures(draw_uncertainty(*section))
    assert len(found) >= 4
    for picture in found[:4]:
        wanted = section[1].shape[0] / section[1].shape[1]
        assert picture.shape[0] / picture.shape[1] == pytest.approx(wanted, rel=0.03)


def test_maps_of_another_size_are_refused(random):
    image = np.zeros((4, 4, 3), dtype=np.uint8)
    with pytest.raises(DataError, match="does not fit"):
        draw_uncertainty("a", image, image[..., 0], np.zeros((4, 4)), np.zeros((3, 4)), SKIN)


def test_files_are_written_whole(both, section, tmp_path):
    reliability_figure(*both, tmp_path / "reliability.png")
    uncertainty_figure(*section, tmp_path / "uncertainty.png")
    for path in tmp_path.iterdir():
        with Image.open(path) as picture:
            assert min(picture.size) > 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reliability.png", "uncertainty.png"]
