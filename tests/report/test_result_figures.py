import numpy as np
import pytest
from PIL import Image
from tests.report.looking import pictures, shown_texts, stumbles

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.report.result_figures import (
    AblationRow,
    Estimate,
    QualitativeRow,
    ResolutionRow,
    ablation_figure,
    draw_ablation,
    draw_qualitative,
    draw_resolution,
    qualitative_figure,
    resolution_figure,
)

MODELS = ["DeepLabV3+", "U-Net (ResNet)", "MiT, trained like the others", "NTRM"]


@pytest.fixture
def windows(random):
    rows = []
    for cancer in ("BCC", "SCC", "IEC"):
        image = random.integers(256, size=(40, 40, 3), dtype=np.uint8)
        truth, *masks = random.integers(12, size=(1 + len(MODELS), 40, 40), dtype=np.uint8)
        rows.append(QualitativeRow(f"{cancer}_1 ({cancer})", image, truth, dict(zip(MODELS, masks, strict=True))))
    return rows


def test_rows_are_windows_and_columns_image_truth_and_models(windows):
    figure = draw_qualitative(windows, SKIN)
    shown = pictures(figure)
    assert len(shown) == 3 * (2 + len(MODELS))
    for place, row in enumerate(windows):
        image, truth, *masks = shown[place * 6 : place * 6 + 6]
        assert np.array_equal(image, row.image)
        assert np.array_equal(truth, SKIN.colourise(row.truth))
        for mask, name in zip(masks, MODELS, strict=True):
            assert np.array_equal(mask, SKIN.colourise(row.predictions[name]))
    texts = [text for text, _ in shown_texts(figure)]
    assert {"image", "truth", *MODELS} <= set(texts)
    first = windows[0]
    share = (first.predictions["NTRM"] == first.truth).mean()
    assert any(text.startswith("BCC_1 (BCC)") and text.endswith(f"NTRM {share:.1%}") for text in texts)
    assert not stumbles(figure)


def test_models_can_be_chosen_and_ordered(windows):
    shown = pictures(draw_qualitative(windows[:1], SKIN, models=["NTRM", "DeepLabV3+"]))
    assert np.array_equal(shown[2], SKIN.colourise(windows[0].predictions["NTRM"]))
    assert len(shown) == 4


def test_shares_leave_ignored_pixels_out(windows):
    row = windows[0]
    truth = row.truth.copy()
    truth[:30] = IGNORE
    figure = draw_qualitative([QualitativeRow("a", row.image, truth, row.predictions)], SKIN, models=["NTRM"])
    share = (row.predictions["NTRM"] == truth)[30:].mean()
    assert f"a · pixels right: NTRM {share:.1%}" in [text for text, _ in shown_texts(figure)]


def test_missing_predictions_are_refused(windows):
    with pytest.raises(DataError, match="no prediction for BCC_1"):
        draw_qualitative(windows, SKIN, models=["nobody"])
    with pytest.raises(UsageError, match="no windows"):
        draw_qualitative([], SKIN)


@pytest.fixture
def variants(random):
    means = random.random(6) * 0.2 + 0.6
    rows = [
        AblationRow(f"variant {k} $ of a long name that needs two lines", m, m - 0.03, m + 0.02)
        for k, m in enumerate(means)
    ]
    return [AblationRow("ntrm-paper", 0.7, 0.69, 0.72), *rows, AblationRow("one seed", 0.66)]


def test_points_and_intervals_are_the_numbers(variants):
    axes = draw_ablation(variants, reference="ntrm-paper").axes[0]
    assert len(axes.containers) == len(variants)
    for place, (row, drawn) in enumerate(zip(variants, axes.containers, strict=True)):
        point, _, (bars,) = drawn
        assert point.get_xydata()[0] == pytest.approx([row.mean, place])
        ends = bars.get_segments()[0][:, 0]
        assert ends == pytest.approx([row.low or row.mean, row.high or row.mean])
    assert {text.get_text() for text in axes.texts} == {f"{row.mean:.3f}" for row in variants}
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed] == [0.7]


def test_the_ablation_can_be_read(variants):
    assert not stumbles(draw_ablation(variants, reference="ntrm-paper", note="three seeds, 95 % intervals"))
    assert not stumbles(draw_ablation(variants[:1]))


def test_impossible_rows_and_references_are_refused(variants):
    with pytest.raises(UsageError, match="impossible interval"):
        AblationRow("a", 0.5, 0.6, 0.7)
    with pytest.raises(UsageError, match="impossible interval"):
        Estimate(float("nan"))
    with pytest.raises(UsageError, match="unknown reference"):
        draw_ablation(variants, reference="nobody")
    with pytest.raises(UsageError, match="no variants"):
        draw_ablation([])


@pytest.fixture
def resolutions():
    paper = {"2x": (0.762, 0.6691), "5x": (0.792, 0.6991), "10x": (0.8106, 0.7288)}
    return [
        ResolutionRow(
            name,
            mpp,
            {"pixel accuracy": Estimate(high - 0.1, high - 0.12, high - 0.09), "mean IoU": Estimate(low - 0.1)},
            {"seconds per section": 40 / mpp**2, "GPU memory of one training step (GB)": 3.0 / mpp},
            {"pixel accuracy": high, "mean IoU": low},
        )
        for (name, (high, low)), mpp in zip(paper.items(), (1.34, 3.35, 6.7), strict=True)
    ]


def test_scores_and_costs_stand_from_coarse_to_fine(resolutions):
    scores, *costs = draw_resolution(resolutions).axes
    assert [label.get_text() for label in scores.get_xticklabels()] == [
        "10x\n6.7 µm/px",
        "5x\n3.35 µm/px",
        "2x\n1.34 µm/px",
    ]
    accuracy, _, _ = scores.containers[0]
    assert accuracy.get_ydata() == pytest.approx([0.7106, 0.692, 0.662])
    hollow = [line for line in scores.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert hollow[0].get_ydata() == pytest.approx([0.8106, 0.792, 0.762])
    assert len(costs) == 2
    heights = [bar.get_height() for bar in costs[0].patches]
    assert heights == pytest.approx([40 / mpp**2 for mpp in (6.7, 3.35, 1.34)])
    assert [text.get_text().split("\n")[1] for text in costs[0].texts] == ["× 1", "× 4", "× 25"]


def test_resolutions_can_be_read(resolutions):
    figure = draw_resolution(resolutions)
    assert "hollow: in the paper" in [text for text, _ in shown_texts(figure)]
    assert not stumbles(figure)


def test_scores_alone_or_with_gaps_can_be_drawn(resolutions):
    bare = [ResolutionRow("10x", 6.7, {"mean IoU": Estimate(0.7)}), ResolutionRow("5x", 3.35, {}, {"seconds": 0.0})]
    figure = draw_resolution(bare)
    assert len(figure.axes) == 2
    assert not stumbles(figure)
    with pytest.raises(UsageError, match="µm/px"):
        ResolutionRow("10x", 0, {})
    with pytest.raises(UsageError, match="no resolutions"):
        draw_resolution([])


def test_files_are_written_whole(windows, variants, resolutions, tmp_path):
    qualitative_figure(windows, SKIN, tmp_path / "a.png")
    ablation_figure(variants, tmp_path / "b.png")
    resolution_figure(resolutions, tmp_path / "c.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png", "c.svg"]
    with Image.open(tmp_path / "a.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24)}
    assert {tissue.rgb for tissue in SKIN.tissues} <= colours
