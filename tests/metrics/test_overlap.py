"""Overlap scores by hand, against sets of pixels, and against torchmetrics where no class is absent."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.labels import SKIN, LabelSchema, Tissue
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import MEASURES, overlap, per_section, pooled


def schema_of(classes):
    return LabelSchema(tuple(Tissue(i, f"T{i}", "", (i, 0, 0)) for i in range(classes)))


def literal(truth, prediction, classes):
    """Scores of each class from sets of pixels; None where undefined."""
    known = [i for i, label in enumerate(truth) if label != 255]
    scores = {measure: [] for measure in MEASURES}
    for c in range(classes):
        true, predicted = {i for i in known if truth[i] == c}, {i for i in known if prediction[i] == c}
        both = len(true & predicted)
        scores["iou"].append(both / len(true | predicted) if true | predicted else None)
        scores["dice"].append(2 * both / (len(true) + len(predicted)) if true | predicted else None)
        scores["precision"].append(both / len(predicted) if predicted else None)
        scores["recall"].append(both / len(true) if true else None)
    right = sum(truth[i] == prediction[i] for i in known)
    return scores, right / len(known) if known else None


def mean_or_none(values):
    defined = [value for value in values if value is not None and not math.isnan(value)]
    return sum(defined) / len(defined) if defined else None


def draw(random, classes, size):
    """Masks that lack some classes."""
    present = random.integers(1, classes + 1)
    truth, prediction = random.integers(present, size=(2, size))
    truth[random.random(size) < 0.2] = 255
    return truth, prediction


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 25))
def test_scores_are_those_of_pixel_sets(seed, classes, size):
    truth, prediction = draw(np.random.default_rng(seed), classes, size)
    expected, accuracy = literal(truth.tolist(), prediction.tolist(), classes)
    found = overlap(confusion(truth, prediction, classes), schema_of(classes)).as_dict()
    assert found["pixel_accuracy"] == pytest.approx(accuracy)
    for measure in MEASURES:
        assert [each[measure] for each in found["classes"].values()] == pytest.approx(expected[measure])
        assert found["macro"][measure] == pytest.approx(mean_or_none(expected[measure]))
    assert found["macro"]["accuracy"] == found["macro"]["recall"]


def test_agrees_with_torchmetrics_where_every_class_occurs(random):
    from torchmetrics.functional import classification  # slow to import, and every process would at collection

    classes = 12
    truth, prediction = random.integers(classes, size=(2, 4000))
    truth[:classes] = prediction[:classes] = np.arange(classes)
    truth[random.random(4000) < 0.1] = 255
    truth[:classes] = np.arange(classes)
    scores = overlap(confusion(truth, prediction, classes), SKIN)
    pair = torch.from_numpy(prediction), torch.from_numpy(truth)
    kind = {"num_classes": classes, "ignore_index": 255}
    references = {
        "iou": classification.multiclass_jaccard_index,
        "dice": classification.multiclass_f1_score,
        "precision": classification.multiclass_precision,
        "recall": classification.multiclass_recall,
    }
    for measure, reference in references.items():
        assert scores.per_class[measure] == pytest.approx(reference(*pair, average="none", **kind).numpy(), rel=1e-5)
        assert scores.macro[measure] == pytest.approx(reference(*pair, average="macro", **kind).item(), rel=1e-5)
    accuracy = classification.multiclass_accuracy(*pair, average="micro", **kind).item()
    assert scores.pixel_accuracy == pytest.approx(accuracy, rel=1e-5)
    assert scores.macro["recall"] == pytest.approx(
        classification.multiclass_accuracy(*pair, average="macro", **kind).item(), rel=1e-5
    )


def test_per_section_is_the_mean_of_defined_scores(random):
    pairs = [draw(random, 5, 30) for _ in range(6)]
    schema = schema_of(5)
    tables = [confusion(*pair, 5) for pair in pairs]
    scores = [overlap(table, schema) for table in tables]
    found = per_section(tables, schema).as_dict()
    assert found["sections"] == 6
    assert found["pixels"] == sum(int((truth != 255).sum()) for truth, _ in pairs)
    assert found["pixel_accuracy"] == pytest.approx(mean_or_none([each.pixel_accuracy for each in scores]))
    for measure in MEASURES:
        assert found["macro"][measure] == pytest.approx(mean_or_none([each.macro[measure] for each in scores]))
        for index, name in enumerate(schema.names):
            expected = mean_or_none([each.per_class[measure][index] for each in scores])
            assert found["classes"][name][measure] == pytest.approx(expected)


def test_sections_without_a_known_pixel_change_nothing_and_alone_are_undefined(random):
    table, other = (confusion(*draw(random, 3, 40), 3) for _ in range(2))
    nothing = np.zeros((3, 3), dtype=np.int64)
    assert pooled([table, other], schema_of(3)).as_dict() == {
        **overlap(table + other, schema_of(3)).as_dict(),
        "sections": 2,
    }
    for average in (pooled, per_section):
        alone, beside = (average(tables, schema_of(3)).as_dict() for tables in ([table], [nothing, table]))
        assert beside == {**alone, "sections": 2}
    found = per_section([np.zeros((12, 12), dtype=np.int64)], SKIN).as_dict()
    assert found["pixel_accuracy"] is None
    assert set(found["macro"].values()) == {None}
    assert list(found["classes"]) == list(SKIN.names)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
