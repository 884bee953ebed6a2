"""Section networks: identity at first, two passes like one context, a small training, a predicted section."""

import numpy as np
import pytest
import torch
from tests.training.small_data import small_recipe, write_small

pytest.importorskip("research.section_networks", reason="this copy has no folder research/")

from research.relation_edges import Study
from research.relation_scores import predicted
from research.section_networks.inference import in_section, load
from research.section_networks.memory import SectionMemory
from research.section_networks.networks import create
from research.section_networks.sums import SectionSums
from research.section_networks.training import train

from ntrm.core.errors import UsageError
from ntrm.data.cache import SectionCache
from ntrm.data.layouts import open_dataset
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.models.registry import create as create_network

CLASSES = 5
SMALL = {"width": 0.125, "dim": 8, "heads": 2}
STITCHING = Stitching(64, 16)
BEST = {"shift": True, "position": True, "dropout": 0.5, "alone": 0.5}
VECTOR = {"nodes": "vector", "graph": "none", "shift": True}


def opened(**options):
    """A small network whose relation acts, which starts closed; the last tissue is nowhere."""
    network = create("ntrm-section", CLASSES, **SMALL, **options).describe(window=64)
    torch.nn.init.normal_(network.relation.readout.out.weight, std=0.5)

    def settled(_module, _inputs, out):
        quiet = out / (1 + out.abs())
        for tissue, part in enumerate(torch.tensor_split(torch.arange(out.shape[2]), CLASSES - 1)):
            quiet[:, tissue, part] += 3
        quiet[:, -1] -= 20
        return quiet

    network.coarse.register_forward_hook(settled)
    return network.eval()


@pytest.fixture
def section(random):
    image = random.integers(0, 256, (100, 140, 3), dtype=np.uint8)
    return image, np.kron(random.integers(0, CLASSES, (10, 14)), np.ones((10, 10), dtype=int)).astype(np.uint8)


@pytest.mark.parametrize(
    "options", [{}, BEST, VECTOR, {"nodes": "tokens", "graph": "none"}, {"scope": "window"}], ids=str
)
def test_it_starts_as_the_control_with_the_same_seed(options, seed):
    torch.manual_seed(seed)
    control = create_network("ntrm-control", CLASSES, width=0.125).eval()
    torch.manual_seed(seed)
    network = create("ntrm-section", CLASSES, **SMALL, **options).eval()
    x = torch.randn(2, 3, 64, 32)
    with torch.no_grad():
        assert torch.equal(network(x).final, control(x).final)


def test_options_that_exclude_each_other_are_refused():
    for wrong in ({"nodes": "vector"}, {"scope": "window", "alone": 0.5}, {"looks": False, "dropout": 0.5}):
        with pytest.raises(UsageError, match="exclude each other"):
            create("ntrm-section", CLASSES, **SMALL, **wrong)


@torch.no_grad()
def test_the_context_of_a_section_is_what_its_windows_add_up_to(seed):
    torch.manual_seed(seed)
    network = opened().double()
    x = torch.randn(4, 3, 64, 32, dtype=torch.float64)
    rows = network.gather(x)
    whole = rows.total()
    in_batch = network.step(x, others=rows.within(torch.zeros(4)) + SectionSums(*(-part for part in rows)))[0]
    torch.testing.assert_close(network(x, context=whole).final, in_batch.final, rtol=1e-9, atol=1e-9)
    assert (network(x).final - in_batch.final).abs().max() > 1e-6  # what the other windows show does matter


def test_a_memory_recalls_the_mean_of_other_windows(seed):
    torch.manual_seed(seed)
    memory = SectionMemory([0, 0, 0, 1], torch.device("cpu"))
    network = create("ntrm-section", CLASSES, **SMALL)
    rows = network.gather(torch.randn(3, 3, 32, 32))
    sections = memory.sections([0, 2, 3])
    assert memory.recalled(sections) is None
    memory.update(sections, rows)
    found = memory.recalled(sections)
    torch.testing.assert_close(found.weight[0], 2 * (rows.weight[0] + rows.weight[1]) / 2)
    assert not found.weight[2].any()  # section 1 has one window alone
    assert memory.visits.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arch", "options"), [("ntrm-section", BEST), ("ntrm-section", {"masks": "true"}), ("mit-section", VECTOR)], ids=str
)
def test_a_small_training_and_a_predicted_section(arch, options, tmp_path, random, monkeypatch):
    if arch.startswith("mit"):
        pytest.importorskip("transformers")
    data = write_small(tmp_path / "data", random)
    found = train(
        arch, data, tmp_path / "run", recipe=small_recipe(steps=2), options={**SMALL, **options}, device="cpu"
    )
    assert found.steps == 2
    network = load(found.model)
    dataset = open_dataset(data)
    cached = SectionCache().open(next(iter(dataset)), dataset.schema)
    image, truth = np.array(cached.image), np.array(cached.mask)
    mask, tally = predicted(network, image, truth, STITCHING, "cpu")
    assert mask.shape == truth.shape
    assert tally.final.sum() == (truth != 255).sum()


def test_a_section_is_stitched_as_by_any_network(section, seed):
    torch.manual_seed(seed)
    network = opened()
    mask, _ = predicted(network, *section, STITCHING, "cpu")
    inside = in_section(network, section[0], STITCHING, device="cpu")
    expected = stitch(Predictor(inside, "cpu"), section[0], stitching=STITCHING)
    assert (mask == expected.mask).all()


def test_cut_edges_are_cut_and_put_back(section, seed):
    torch.manual_seed(seed)
    study = Study(opened(), [section[0]], [section[1]], STITCHING, "cpu")
    attention = study.attention()
    assert np.isnan(attention[-1]).all()  # the tissue that is nowhere
    assert np.nansum(attention, axis=0)[:4] == pytest.approx(np.ones(4), rel=1e-4)
    with study.without(~np.eye(CLASSES, dtype=bool)):
        np.testing.assert_allclose(np.diag(study.attention())[:4], 1, rtol=1e-6)
    np.testing.assert_allclose(study.attention()[:4, :4], attention[:4, :4], rtol=1e-6)
