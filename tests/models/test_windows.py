import math

import numpy as np
import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.tiles import cut
from ntrm.models.base import NetworkGraph, Segmentation, SegmentationModel
from ntrm.models.config import ModelConfig, schema_for
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.windows import Stitching, blended, blended_rows, image_tiles, most_probable, stitch, strongest

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


class Position(SegmentationModel):
    """Logits that depend on the colour and, like those of real networks, on where in its window a pixel lies."""

    def __init__(self, window=64, coarse=False, largest=10_000):
        super().__init__()
        self.config = ModelConfig("position", schema_for(3), window=window, temperature=1.0)
        self.coarse, self.largest, self.batches = coarse, largest, []

    def segment(self, x, *, coarse, graph):
        self.batches.append(len(x))
        if len(x) > self.largest:
            raise torch.OutOfMemoryError("simulated")
        size = x.shape[-1]
        across, down = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="xy")
        ramp = torch.stack([across, down, torch.zeros_like(down)]) * (3 / size)
        return Segmentation(x + ramp, (x - ramp) if coarse and self.coarse else None)


def literal(network, image, stitching, head="probabilities"):
    """Pixel by pixel, in double precision: every window that covers it, weighted, over the sum of the weights."""
    height, width = image.shape[:2]
    size = stitching.window
    total = np.zeros((network.config.classes, height, width))
    divisor = np.zeros((height, width))
    ramp = max(1, min(stitching.overlap, size // 2))

    def weight(place):
        if stitching.overlap == 0:
            return 1.0
        from_rim = min(place, size - 1 - place) + 0.5
        return 1e-3 + (1 - 1e-3) * math.sin(math.pi / 2 * min(1.0, from_rim / ramp)) ** 2

    along = [weight(place) for place in range(size)]
    for window in stitching.windows(height, width):
        tile = cut(image, window, fill=255)
        values = getattr(Predictor(network, "cpu").predict(tile, coarse=True), head)
        for y in range(window.height):
            for x in range(window.width):
                total[:, window.top + y, window.left + x] += along[y] * along[x] * values[:, y, x]
                divisor[window.top + y, window.left + x] += along[y] * along[x]
    return total / divisor


def draw(random, height, width):
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("height", "width", "overlap"), [(90, 130, 16), (64, 64, 16), (20, 150, 0), (40, 33, 16), (100, 70, 40), (1, 1, 8)]
)
def test_it_is_the_weighted_mean_of_all_windows_that_cover_a_pixel(height, width, overlap, random):
    network, image, stitching = Position(coarse=True), draw(random, height, width), Stitching(64, overlap)
    found = stitch(Predictor(network, "cpu", batch=3), image, stitching=stitching, coarse=True, probabilities=True)
    expected = literal(network, image, stitching)
    np.testing.assert_allclose(found.probabilities, expected, **CLOSE)
    assert_strongest(found.mask, expected)
    np.testing.assert_allclose(found.confidence, expected.max(axis=0), **CLOSE)
    assert_strongest(found.coarse_mask, literal(network, image, stitching, "coarse"))


def assert_strongest(mask, values):
    """The mask has the strongest class wherever one is clearly stronger than the next."""
    second, first = np.sort(values, axis=0)[-2:]
    assert np.array_equal(mask[first - second > 1e-5], values.argmax(axis=0)[first - second > 1e-5])


def test_batch_size_changes_nothing_and_memory_that_runs_out_neither(random):
    image = draw(random, 150, 200)
    once = stitch(Predictor(Position(), "cpu", batch=64), image, probabilities=True)
    for batch, largest in ((5, 64), (16, 3)):
        network = Position(largest=largest)
        again = stitch(Predictor(network, "cpu", batch=batch), image, probabilities=True)
        assert np.array_equal(once.probabilities, again.probabilities)
    assert network.batches[:3] == [12, 6, 3]


def test_rows_come_out_as_soon_as_no_later_window_can_touch_them(random):
    image, stitching = draw(random, 200, 100), Stitching(64, 16)
    windows = stitching.windows(200, 100)
    tops, read, seen = sorted({window.top for window in windows}), [], []

    def reading():
        for batch, tiles in image_tiles(image, windows, 2):
            read.extend(window.top for window in batch)
            yield batch, tiles

    for rows in blended_rows(Predictor(Position(), "cpu"), reading(), 100, stitching):
        seen.append((rows.top, rows.final.shape[1]))
        assert max(read) <= tops[min(len(seen), len(tops) - 1)], "windows were read long before they were needed"
    assert seen == [(top, after - top) for top, after in zip(tops, [*tops[1:], 200], strict=True)]


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_rows_are_the_sums_over_the_whole_section_to_the_last_bit(random, share):
    """Window after window over the whole section, whichever windows there are."""
    for _ in range(15):
        height, width = (int(n) for n in random.integers(1, 400, 2))
        stitching = Stitching(64, int(random.integers(0, 64)) if height * width < 40_000 else 16)
        every, weights = stitching.windows(height, width), stitching.weights()
        windows = [window for window in every if random.random() < share] or [every[0]]
        values = torch.from_numpy(random.random((len(windows), 2, 64, 64), dtype=np.float32))
        total, divisor = torch.zeros(2, height, width), torch.zeros(height, width)
        for window, value in zip(windows, values, strict=True):
            part = weights[: window.height, : window.width]
            total[:, *window.slices] += value[:, : window.height, : window.width] * part
            divisor[window.slices] += part
        found, last = torch.zeros(2, height, width), 0
        for top, rows in blended([(windows[:3], values[:3]), (windows[3:], values[3:])], weights, width):
            assert top >= last
            last = top + rows.shape[1]
            found[:, top:last] = rows
        assert torch.equal(found, total / torch.where(divisor > 0, divisor, 1))


@pytest.mark.parametrize("options", [(16,), (64, 64), (64, -2), (64.5,)])
def test_impossible_windows_are_refused(options):
    with pytest.raises(UsageError, match="impossible"):
        Stitching(*options)
    assert (Stitching(64).overlap, Stitching(64, 0).overlap) == (16, 0)


@pytest.mark.parametrize("batch", [1, 4])
def test_graphs_come_batch_by_batch(random, batch):
    torch.manual_seed(1)
    network = create("ntrm-paper", SKIN, width=0.125, dim=16).describe(window=64)
    image, windows = draw(random, 150, 120), Stitching(64, 16).windows(150, 120)
    predictor, seen = Predictor(network, "cpu", batch=batch), []
    numbers = []

    def note(graphs, first):
        seen.append(graphs)
        numbers.extend(range(first, first + len(graphs.area)))

    list(blended_rows(predictor, image_tiles(image, windows, batch), 120, Stitching(64), graphs=note))
    assert numbers == [*range(len(windows))]
    together = NetworkGraph(*(torch.cat(parts) for parts in zip(*seen, strict=True)))
    alone = [predictor.predict(cut(image, window, fill=255), graph=True).graph for window in windows]
    np.testing.assert_array_equal(together.presence.numpy(), [graph.presence for graph in alone])
    np.testing.assert_allclose(together.attention.numpy(), [graph.attention for graph in alone], atol=1e-4)
    bare = Predictor(Position(), "cpu")
    list(blended_rows(bare, image_tiles(image, windows, batch), 120, Stitching(64), graphs=note))
    assert len(numbers) == len(windows)


def test_the_strongest_class_is_the_first_of_the_highest(random):
    # Few values, so that many are equal; some pixels have none at all.
    values = random.integers(0, 4, (int(random.integers(1, 15)), 30, 40)).astype(np.float32) / 3
    highest, chosen = strongest(torch.from_numpy(values))
    assert np.array_equal(highest.numpy(), values.max(axis=0))
    expected = np.where(values.max(axis=0) > 0, values.argmax(axis=0), IGNORE)
    assert chosen.dtype == torch.uint8
    assert np.array_equal(chosen.numpy(), expected)
    assert np.array_equal(most_probable(torch.from_numpy(values)).numpy(), expected)
