import numpy as np
import pytest
import torch
from bench.relation_prior import re_estimated


def draw(random, classes=4, height=5, width=6):
    p = torch.from_numpy(random.dirichlet(np.ones(classes), (height, width)).transpose(2, 0, 1).copy())
    known = torch.from_numpy(random.random((height, width)) < 0.7)
    known[0, 0] = True
    return p, known, torch.from_numpy(random.dirichlet(np.ones(classes)))


@pytest.mark.parametrize(("power", "turns"), [(1.0, 1), (0.5, 3)])
def test_as_written_down_pixel_by_pixel(random, power, turns):
    p, known, usual = draw(random)
    places = [(y, x) for y in range(known.shape[0]) for x in range(known.shape[1])]
    r = {place: p[:, place[0], place[1]].numpy() for place in places}
    for _ in range(turns):
        seen = [r[place] for place in places if known[place]]
        factors = ((sum(seen) / len(seen) + 1e-6) / (usual.numpy() + 1e-6)) ** power
        moved = {place: p[:, place[0], place[1]].numpy() * factors for place in places}
        r = {place: values / values.sum() for place, values in moved.items()}
    found = re_estimated(p, known, usual, power, turns)
    for (y, x), values in r.items():
        np.testing.assert_allclose(found[:, y, x].numpy(), values, rtol=1e-9)


def test_a_usual_section_stays_as_it_is(random):
    p, known, _ = draw(random)
    usual = p[:, known].mean(dim=1)
    torch.testing.assert_close(re_estimated(p, known, usual, 1.0, 5), p)


def test_what_a_section_has_much_of_becomes_likelier(random):
    p, known, _ = draw(random)
    usual = p[:, known].mean(dim=1) * torch.tensor([0.5, 1.0, 1.0, 1.5])
    found = re_estimated(p, known, usual / usual.sum(), 1.0, 1)
    assert (found[0] > p[0]).all()
    assert (found[3] < p[3]).all()
