import numpy as np
import pytest
from PIL import Image
from tests.report.looking import pictures, shown_texts, stumbles

from ntrm.core.errors import DataError
from ntrm.core.labels import SKIN
from ntrm.metrics.calibration import CalibrationCounts, calibration_counts
from ntrm.report.confidence_figures import (
    draw_reliability,
    draw_uncertainty,
    reliability_figure,
    uncertainty_figure,
)


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
