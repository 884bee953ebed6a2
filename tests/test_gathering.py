"""Sections that are gone over before they are predicted: sums of windows, and stitching with them."""

import numpy as np
import pytest
import torch
from tests.models.section.variants import build, patchwork

from ntrm.data.tiles import cut, tile_windows
from ntrm.gathering import Gathered, gather, gather_image, one_pass
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.models.registry import create
from ntrm.models.section.network import SectionNTRM

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture
def image(random):
    return random.integers(0, 256, (150, 100, 3), dtype=np.uint8)


def predictor_of(name, seed, batch=2, window=64):
    torch.manual_seed(seed)
    network = patchwork(build(name))
    network.describe(window=window)
    return Predictor(network, "cpu", batch=batch)


def literal(network, image, stitching):
    """The section as one batch in double precision: its windows pooled, then each predicted in that context."""
    network = network.double().eval()
    mean, std = (
        torch.tensor(part, dtype=torch.float64).view(3, 1, 1) for part in (network.config.mean, network.config.std)
    )

    def tensors(windows):
        tiles = [torch.from_numpy(cut(image, window, fill=255)).double().permute(2, 0, 1) / 255 for window in windows]
        return torch.stack([(tile - mean) / std for tile in tiles])

    once, every = tile_windows(*image.shape[:2], size=stitching.window), stitching.windows(*image.shape[:2])
    context = []
    with torch.no_grad():
        for _ in range(network.passes):
            rows = network.gather(tensors(once), context=context)
            context.append(type(rows)(*(part.sum(dim=0, keepdim=True) for part in rows)))
        maps = network(tensors(every), context=context).final.softmax(dim=1)
    weights = stitching.weights().double()
    total, divisor = torch.zeros(len(maps[0]), *image.shape[:2], dtype=torch.float64), torch.zeros(image.shape[:2])
    for window, values in zip(every, maps, strict=True):
        part = weights[: window.height, : window.width]
        total[:, *window.slices] += values[:, : window.height, : window.width] * part
        divisor[window.slices] += part
    return (total / divisor).numpy()


@pytest.mark.parametrize("name", ["default", "two rounds", "vector", "tokens that speak", "position"])
def test_two_passes_are_the_section_as_one_batch(image, name, seed):
    predictor, stitching = predictor_of(name, seed), Stitching(64, 16)
    found = stitch(predictor, image, stitching=stitching, probabilities=True).probabilities
    torch.manual_seed(seed)
    expected = literal(patchwork(build(name)).describe(window=64), image, stitching)
    np.testing.assert_allclose(found, expected, **CLOSE)
    # What the rest of the section shows does matter: other pixels elsewhere, other probabilities here.
    other = image.copy()
    other[:, 70:] //= 4
    changed = stitch(predictor, other, stitching=stitching, probabilities=True).probabilities
    assert np.abs(changed[:, :60, :30] - found[:, :60, :30]).max() > 1e-5


def test_sums_do_not_depend_on_how_windows_are_batched(image, seed):
    sums = [gather_image(predictor_of("two rounds", seed, batch), image, 64) for batch in (1, 4, 16)]
    assert len(sums[0]) == 2
    for context in sums[1:]:
        for one, two in zip(sums[0], context, strict=True):
            for part, same in zip(one, two, strict=True):
                torch.testing.assert_close(part, same, rtol=1e-4, atol=1e-4)
    cells = sum(window.height * window.width for window in tile_windows(150, 100, 64)) / 64
    assert sums[0][0].weight.sum().item() == pytest.approx(cells, rel=1e-5)


def test_a_pass_that_goes_on_ends_with_the_same_bits(image, seed, random):
    predictor, windows = predictor_of("position", seed), tile_windows(150, 100, 64)
    steps = [*one_pass(predictor, windows, lambda window: cut(image, window, 255))]
    assert [step.windows for step in steps] == [2, 4, 6]
    begin = steps[int(random.integers(len(steps) - 1))]
    *_, last = one_pass(predictor, windows, lambda window: cut(image, window, 255), begin=begin)
    assert all(torch.equal(one, two) for one, two in zip(last.sums, steps[-1].sums, strict=True))
    assert [*one_pass(predictor, windows, pytest.fail, begin=Gathered(last.sums, 6))] == []


def test_memory_that_runs_out_halves_the_batch(image, seed, monkeypatch):
    whole = gather_image(predictor_of("default", seed, 16), image, 64)
    predictor = predictor_of("default", seed, 16)
    real, sizes = SectionNTRM.gather, []

    def limited(self, x, **more):
        sizes.append(len(x))
        if len(x) > 2:
            raise torch.OutOfMemoryError("simulated")
        return real(self, x, **more)

    monkeypatch.setattr(SectionNTRM, "gather", limited)
    halved = gather_image(predictor, image, 64)
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    torch.testing.assert_close(halved[0].features, whole[0].features, rtol=1e-4, atol=1e-4)


def test_networks_that_need_their_window_alone_are_not_asked(image):
    predictor = Predictor(create("ntrm-control", 3, width=0.125), "cpu")
    assert predictor.passes == 0
    assert gather_image(predictor, image, 64) is None
    assert gather(predictor, tile_windows(150, 100, 64), pytest.fail) is None


def test_without_windows_there_is_no_context(seed):
    assert gather(predictor_of("default", seed), (), pytest.fail) is None
