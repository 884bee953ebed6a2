"""Pooling of features against a loop over windows and pixels."""

import numpy as np
import pytest
import torch
from tests.correct.engine.test_parts import blocks
from tests.reference.region_graph import pool, reader, region_graph

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.correct.engine.parts import parts_of
from ntrm.correct.engine.pool import DENSITY, features_of, smooth_density
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.windows import Stitching

MPP = Resolution.square(6.7)


@pytest.fixture(scope="module")
def predictor():
    torch.manual_seed(3)
    return Predictor(create("ntrm-paper", SKIN, width=0.125).describe(window=64), "cpu", batch=2)


@pytest.fixture
def section(random):
    mask = blocks(random, shape=(6, 8))
    return random.integers(0, 256, (*mask.shape, 3)).astype(np.uint8), mask


def literal_means(predictor, image, nodes):
    """Sums over windows, pixels and channels, one by one."""
    stitching = Stitching(64)
    weights, sums, total = stitching.weights().numpy(), {}, np.zeros(nodes.max() + 1)
    with features_of(predictor) as seen:
        for window in stitching.windows(*nodes.shape):
            tile = reader(image)(window)
            final = predictor.probabilities(tile[None]).final[0]
            layers = {name: layer[0].numpy() for name, layer in seen().items()} | {"probabilities": final.numpy()}
            layers["colour"] = DENSITY[tile].transpose(2, 0, 1)
            for row in range(window.height):
                for column in range(window.width):
                    node = nodes[window.top + row, window.left + column]
                    if node < 0:
                        continue
                    total[node] += weights[row, column]
                    for name, layer in layers.items():
                        step = 64 // layer.shape[1]
                        value = layer[:, row // step, column // step]
                        kept = sums.setdefault(name, np.zeros((len(total), len(value))))
                        kept[node] += weights[row, column] * value
    return {name: values / total[:, None] for name, values in sums.items()}


def test_pooled_features_are_those_of_a_loop(predictor, section):
    image, mask = section
    parts = parts_of(mask, SKIN, MPP, side=8)
    pooled = pool(predictor, parts, image)
    expected = literal_means(predictor, image, parts.runs.dense())
    assert set(pooled) == {"related", "last", "probabilities", "colour"}
    for name in ("related", "last", "probabilities"):
        assert pooled[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5)
    assert pooled["colour"][:, :3] == pytest.approx(expected["colour"], abs=1e-5)
    assert pooled["probabilities"].sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_the_related_features_are_what_the_relation_gave_and_the_last_what_is_classified(predictor, random):
    pixels = random.integers(0, 256, (1, 64, 64, 3)).astype(np.uint8)
    network = predictor.network
    with features_of(predictor) as seen:
        final = predictor.probabilities(pixels).final
        layers = seen()
    assert layers["related"].shape[-1] == 64 // 8
    again = network.classify(layers["last"]).detach() / predictor.config.temperature
    assert torch.allclose(again.softmax(dim=1), final, atol=1e-5)


def test_batches_cut_by_halves_come_together(random):
    runner = Predictor(create("ntrm-control", SKIN, width=0.125).describe(window=32), "cpu", batch=3)
    pixels = random.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    with features_of(runner) as seen:
        runner.probabilities(pixels)
        together = seen()
        runner.batch = 1
        runner.probabilities(pixels)
        apart = seen()
    assert len(together["last"]) == len(apart["last"]) == 3
    assert torch.allclose(together["last"], apart["last"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("arch", "groups"), [("unet-resnet18", {"last"}), ("mit-b0", set())])
def test_a_network_gives_the_features_that_it_has(arch, groups, random):
    runner = Predictor(create(arch, SKIN, width=0.125).describe(window=64), "cpu")
    image = random.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    graph = region_graph(runner, image, np.zeros((64, 64), dtype=np.uint8), MPP)
    assert set(graph.features) == groups | {"colour", "shape", "depth"}


def test_the_density_does_not_depend_on_how_many_rows_are_read(random):
    image = random.integers(0, 256, (40, 21, 3)).astype(np.uint8)
    rows = smooth_density(reader(image), 40, 21)
    apart = np.concatenate([rows(top, 8) for top in range(0, 40, 8)])
    assert apart == pytest.approx(rows(0, 40), abs=1e-6)


def test_colour_has_the_deviation_of_the_density_in_one_window(predictor, random):
    image = random.integers(0, 256, (16, 16, 3)).astype(np.uint8)
    parts = parts_of(np.zeros((16, 16), dtype=np.uint8), SKIN, MPP, side=16)
    colour = pool(predictor, parts, image)["colour"][0]
    weights = Stitching(64).weights().numpy()[:16, :16, None]
    mean = (weights * DENSITY[image]).sum((0, 1)) / weights.sum()
    deviation = np.sqrt((weights * (DENSITY[image] - mean) ** 2).sum((0, 1)) / weights.sum())
    assert colour == pytest.approx([*mean, *deviation], rel=1e-4)
