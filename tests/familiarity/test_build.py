from dataclasses import fields

import numpy as np
import pytest
import torch
from tests.familiarity.small import make_network, stained, write_skin
from tests.segment.small import BKG, paint

from ntrm.core.errors import RefusedError
from ntrm.data.split import open_splits
from ntrm.familiarity.build import (
    LEAST_SECTIONS,
    LEAST_TISSUE,
    PARTS,
    SMALLEST_PX,
    Observation,
    build_reference,
    class_statistics,
    null_distribution,
    observe,
    random_crops,
)
from ntrm.familiarity.judge import Unit, judge
from ntrm.familiarity.reference import LEVELS, read_reference
from ntrm.models.predictor import Predictor
from ntrm.results.familiarity import UNFAMILIAR


def seen(values, classes, section):
    return Observation(section, None, values.astype(np.float32), classes.astype(np.uint8))


@pytest.mark.failed_once(474240140)
def test_whitened_cells_of_a_class_have_unit_covariance_in_colour_and_in_texture(random):
    mixing = np.eye(9) + random.uniform(-0.08, 0.08, (9, 9))  # one that is nearly singular would meet the ridge
    some = [seen(random.normal(size=(4000, 9)) @ mixing + 3, np.full(4000, number % 2), number) for number in range(12)]
    known = class_statistics(some, 2)
    values = np.concatenate([each.values for each in some[1::2]]).astype(np.float64)
    np.testing.assert_allclose(known.means[1], values.mean(axis=0), atol=1e-4)
    covariance = np.cov((values - known.means[1].numpy()) @ known.whitening[1].numpy(), rowvar=False)
    for block in (slice(0, 3), slice(3, 9)):
        np.testing.assert_allclose(covariance[block, block], np.eye(block.stop - block.start), atol=0.01)
    assert not known.whitening[:, :3, 3:].any()
    assert not known.whitening[:, 3:, :3].any()


def test_parts_show_tissue_and_differ_in_size(random):
    mask = paint(random)
    image, tissue = stained(mask, random), mask != BKG
    parts = [*random_crops(image, tissue, np.random.default_rng(3))]
    assert parts[0] is image
    assert len(parts) == PARTS + 1
    sizes = [part.shape[:2] for part in parts[1:]]
    assert all(SMALLEST_PX <= wide <= min(high, 130) and high <= 190 for high, wide in sizes)
    assert len(set(sizes)) > PARTS // 2
    bright = np.mean([(part.min(axis=2) > 225).mean() for part in parts[1:]])
    assert bright < 1 - LEAST_TISSUE
    again = [*random_crops(image, tissue, np.random.default_rng(3))]
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_quantiles_and_tails_of_each_size_are_those_of_its_units(random):
    found, sizes = random.normal(size=(80, 3)), random.normal(size=80)
    log_areas, quantiles, tails = null_distribution(found, sizes)
    assert (log_areas.shape, quantiles.shape, tails.shape) == ((3,), (3, 3, 5), (3, 3))
    order = np.argsort(sizes)
    groups = [order[:27], order[27:54], order[54:]]
    for number, group in enumerate(groups):
        assert log_areas[number] == pytest.approx(np.median(sizes[group]), abs=1e-6)
        for aspect in range(3):
            own = found[group, aspect]
            np.testing.assert_allclose(quantiles[aspect, number], [np.quantile(own, level) for level in LEVELS])
            highest = [value - np.quantile(own, 0.9) for value in own if value > np.quantile(own, 0.9)]
            assert tails[aspect, number] == pytest.approx(max(0.05, np.mean(highest)))


def test_the_same_seed_gives_the_same_bytes(skin, predictor, reference, tmp_path):
    files = {}
    for name, each in {"first": reference, "same": build_reference(predictor, open_splits(skin))}.items():
        (tmp_path / name).mkdir()
        each.write(tmp_path / name, "a" * 64)
        files[name] = [(tmp_path / name / file).read_bytes() for file in ("reference.json", "reference.safetensors")]
    assert files["first"] == files["same"]
    assert read_reference(tmp_path / "first", "a" * 64, predictor.config.schema.names) is not None


def test_only_aggregates_are_kept(reference, predictor):
    """13 training and 11 held-out sections: no array has a place for each of them, and none for their parts."""
    for field in fields(reference.numbers):
        assert max(getattr(reference.numbers, field.name).shape) <= 10, field.name
    assert dict(reference.about) == {
        "training": {"sections": 13, "patients": 13},
        "held_out": {"split": "val", "sections": 11, "patients": 11},
        "fingerprint": reference.about["fingerprint"],
        "seed": 0,
    }
    assert (reference.classes, reference.mpp) == (predictor.config.schema.names, 6.7)


def unit_of(predictor, reference, image):
    """As a slide would be recorded."""
    found, numbers = observe(predictor, image), reference.numbers
    away = found.values - numbers.class_means[found.classes]
    z = np.stack([row @ numbers.class_whitening[kind] for row, kind in zip(away, found.classes, strict=True)])
    return Unit.of(np.concatenate([[len(z)], z.sum(axis=0), away.sum(axis=0)]), found.graph)


def test_fresh_sections_of_the_same_kind_are_familiar_and_inverted_ones_are_not(predictor, reference, random):
    schema = predictor.config.schema
    plain = [stained(paint(random), random) for _ in range(10)]
    strange = [judge(unit_of(predictor, reference, image), reference, schema) for image in plain]
    assert sum(each.verdict == UNFAMILIAR for each in strange) <= 1
    for image in plain[:3]:
        found = judge(unit_of(predictor, reference, 255 - image), reference, schema)
        assert found.verdict == UNFAMILIAR
        assert found.reasons[0].split(":")[0] in ("colours", "texture", "anatomy")


@pytest.mark.parametrize("few", ["train", "val"])
def test_too_few_sections_are_refused(predictor, tmp_path, random, few):
    splits = {"train": LEAST_SECTIONS, "val": LEAST_SECTIONS} | {few: LEAST_SECTIONS - 1}
    with pytest.raises(RefusedError, match=rf"7 in the split {few}[\s\S]*at least 8"):
        build_reference(predictor, open_splits(write_skin(tmp_path / "data", random, splits)))


def test_a_network_that_sees_no_tissue_is_refused(skin):
    network = make_network()
    with torch.no_grad():
        network.colours[:] += 5  # far from every pixel…
        network.colours[BKG] = 0.5  # …but for the background
    with pytest.raises(RefusedError, match="0 in the split train, in which the network sees tissue"):
        build_reference(Predictor(network, "cpu"), open_splits(skin))
