import numpy as np
import pytest

from ntrm.core.labels import IGNORE, SKIN
from ntrm.evaluation.interfaces import InterfaceCounts, interface_counts, interface_name
from ntrm.models.config import schema_for


def literal(truth, final, coarse):
    """Pixel by pixel, neighbour by neighbour: {(A, B): [pixels, wrong, corrected, broken]} with A < B."""
    found = {}
    height, width = truth.shape
    for y in range(height):
        for x in range(width):
            own = truth[y, x]
            if own == IGNORE:
                continue
            near = {
                int(truth[v, u])
                for v in range(max(0, y - 3), min(height, y + 4))
                for u in range(max(0, x - 3), min(width, x + 4))
            }
            for other in near - {int(own), IGNORE}:
                counts = found.setdefault((min(own, other), max(own, other)), [0, 0, 0, 0])
                was, now = coarse[y, x] == own, final[y, x] == own
                counts[0] += 1
                counts[1] += not now
                counts[2] += now and not was
                counts[3] += was and not now
    return found


def patches(random, classes, shape, ignored=True):
    """Blocks of one class each, so that pixels differ in what lies within reach."""
    coarse = random.integers(0, classes + ignored, (-(-shape[0] // 5), -(-shape[1] // 4)))
    mask = np.kron(coarse, np.ones((5, 4), dtype=int))[: shape[0], : shape[1]]
    return np.where(mask == classes, IGNORE, mask).astype(np.uint8)


@pytest.mark.parametrize("shape", [(23, 31), (2, 40), (1, 1)])
def test_it_counts_what_the_definition_says(shape, random):
    schema = schema_for(5)
    truth = patches(random, 5, shape)
    coarse, final = (np.where(random.random(shape) < 0.6, truth, random.integers(0, 5, shape)) for _ in range(2))
    coarse, final = (np.where(mask == IGNORE, 0, mask).astype(np.uint8) for mask in (coarse, final))
    found = interface_counts(truth, final, coarse, schema)
    expected = literal(truth, final, coarse)
    assert {tuple(map(schema.index, pair)) for pair in found.pairs} == set(expected)
    for (one, other), (pixels, wrong, corrected, broken) in expected.items():
        counts = found.of(schema.names[one], schema.names[other])
        assert counts == found.of(schema.names[other], schema.names[one])
        assert (counts["pixels"], counts["wrong"]) == (pixels, wrong)
        assert (counts["corrected"], counts["broken"]) == (corrected, broken)
        assert counts["coarse_wrong"] == wrong + corrected - broken


@pytest.mark.failed_once(1678161626)
def test_sections_add_up(random):
    schema = schema_for(3)
    parts = []
    for _ in range(3):
        truth, final, coarse = (patches(random, 3, (12, 12), ignored=False) for _ in range(3))
        parts.append(interface_counts(truth, final, coarse, schema))
    total = InterfaceCounts.total(parts)
    assert set(total.pairs) == {pair for part in parts for pair in part.pairs} != set()
    for one, other in total.pairs:
        for key, value in total.of(one, other).items():
            assert value == sum(part.of(one, other)[key] for part in parts)


def test_the_claimed_interfaces_are_always_there_and_cancers_come_first():
    mask = np.zeros((4, 4), np.uint8)
    assert list(interface_counts(mask, mask, None, SKIN).as_dict()) == ["BCC-RET", "RET-HYP", "EPI-KER"]
    assert interface_name("EPI", "IEC", SKIN) == "IEC-EPI"
