from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.evaluation.small import ByColour, draw_mask, draw_sections, schema_of, write_dataset
from tests.reference.calibration_counts import calibration_counts

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.split import open_splits
from ntrm.evaluation import sections
from ntrm.evaluation.measuring import MasksToMeasure, measure
from ntrm.evaluation.sections import SectionAccumulator, predict_section
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Rows, Stitching, stitch


def literal_confusion(truth, prediction, classes):
    table = np.zeros((classes, classes), dtype=int)
    for true, found in zip(truth.ravel(), prediction.ravel(), strict=True):
        if true != IGNORE:
            table[true, found] += 1
    return table


@pytest.mark.parametrize("bands", [1, 3])
def test_a_section_is_counted_like_the_metrics_do(bands, random):
    K, height, width = 5, 30, 22
    final, coarse = (random.dirichlet(np.ones(K), (height, width)).transpose(2, 0, 1) for _ in range(2))
    truth = draw_mask(random, height, width, K, ignored=0.2)
    counted = SectionAccumulator(truth, K)
    for top in range(0, height, height // bands):
        rows = slice(top, top + height // bands)
        counted(Rows(top, *(torch.tensor(p[:, rows], dtype=torch.float32) for p in (final, coarse))))
    assert np.array_equal(counted.final, literal_confusion(truth, final.argmax(axis=0), K))
    assert np.array_equal(counted.coarse, literal_confusion(truth, coarse.argmax(axis=0), K))
    expected = calibration_counts(final.astype(np.float32), truth)
    found = counted.calibration
    assert np.array_equal(found.pixels, expected.pixels)
    assert np.array_equal(found.correct, expected.correct)
    np.testing.assert_allclose(found.confidence, expected.confidence, rtol=1e-6)
    assert found.squares == pytest.approx(expected.squares, rel=1e-6)
    assert found.expected_error == pytest.approx(expected.expected_error, abs=1e-7)


def test_accelerators_sum_by_bin_like_the_cpu(random):
    bins, values = torch.tensor(random.integers(0, 16, 500)), torch.tensor(random.random(500))
    expected = np.bincount(bins.numpy(), weights=values.numpy(), minlength=16)[:15]
    np.testing.assert_allclose(sections._sum_on_cpu(bins, values), expected, rtol=1e-12)
    np.testing.assert_allclose(sections._sum_on_accelerator(bins, values), expected, rtol=1e-12)


def test_a_section_is_predicted_in_the_networks_classes(tmp_path, random):
    drawn = draw_sections(random, (70, 90))
    other = schema_of(("SCC", "BKG", "EPI", "RET"))
    parts = open_splits(write_dataset(tmp_path / "data", drawn, schema=other))
    table = schema_of().remap_table(other)
    predictor, (case,) = Predictor(ByColour(), "cpu"), parts["test"]
    found = predict_section(predictor, case, other, table, stitching=Stitching(64))
    _, patient, seen, truth = drawn["s0"]
    assert np.array_equal(found.stitched.mask, seen)
    assert np.array_equal(found.truth, truth)
    counts = found.counts
    assert (counts.name, counts.patient, counts.pixels) == ("s0", patient, 70 * 90)
    assert np.array_equal(counts.confusion, literal_confusion(truth, seen, 4))
    assert np.array_equal(counts.coarse, literal_confusion(truth, found.stitched.coarse_mask, 4))
    probabilities = stitch(predictor, found.section.image, probabilities=True).probabilities
    expected = calibration_counts(probabilities, truth)
    assert counts.calibration.expected_error == pytest.approx(expected.expected_error, abs=1e-6)
    assert counts.calibration.brier == pytest.approx(expected.brier, abs=1e-6)


@pytest.mark.parametrize("annotated", [True, False])
def test_cancers_are_judged_where_the_truth_is_known(annotated):
    """A right tumour of which nobody annotated anything is not invented; one that is contradicted is."""
    mask = np.full((60, 60), SKIN.index("RET"), dtype=np.uint8)
    mask[:10] = SKIN.index("EPI")
    mask[20:50, 20:50] = SKIN.index("BCC")
    truth = np.where(mask == SKIN.index("BCC"), SKIN.index("RET") if annotated else IGNORE, mask).astype(np.uint8)
    same = np.arange(256, dtype=np.uint8)
    confidence = np.ones(mask.shape, dtype=np.float32)
    section = SimpleNamespace(mask=truth)
    found = measure(MasksToMeasure(section, same, mask, confidence, None, SKIN, Resolution.square(6.7)))
    assert [finding.name for finding in found.cancers if finding.present] == ["BCC"] * annotated
    assert not any(finding.present for finding in found.true_cancers)
