import numpy as np
import pytest
import torch

from ntrm.core.labels import SKIN
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.paper.costs import network_cost, stages_table


def test_parameters_and_operations_are_counted_without_computing():
    network = create("ntrm-control", SKIN, width=0.125)
    parameters, operations = network_cost("ntrm-control", SKIN, 64, {"width": 0.125})
    assert parameters == sum(p.numel() for p in network.parameters())
    counted = 0

    def count(module, _, out):
        nonlocal counted
        inner = module.in_channels // module.groups * np.prod(module.kernel_size)
        counted += int(2 * inner * out.numel())

    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)
    with torch.inference_mode():
        network.eval()(torch.zeros(1, 3, 64, 64))
    assert operations == counted


@pytest.mark.parametrize("masks", ["hard", "soft", "plain"])
def test_stages_are_timed_on_real_windows_and_formulas_use_their_sizes(random, masks, tmp_path):
    torch.manual_seed(0)
    network = create("ntrm-paper", SKIN, width=0.125, dim=8, layers=2, masks=masks).eval()
    windows = [random.integers(0, 256, (64, 96, 3), dtype=np.uint8) for _ in range(2)]
    table = stages_table(Predictor(network, "cpu"), windows)
    edges = np.mean([p.graph.adjacency.sum() for p in Predictor(network, "cpu").predict(windows, graph=True)])
    assert table.note.startswith(f"K = 12 tissues, N = 96 places, d = 8, L = 2, C = 16, |E| = {edges:.1f} edges")
    assert [row["stage"] for row in table.rows[:7]] == ["Reg", "ψ", "Node", "Adj, Bnd", "Edge", "layers", "Proj"]
    operations = {row["stage"]: row["operations by it"] for row in table.rows}
    assert (operations["Node"], operations["Adj, Bnd"]) == (12 * 96 * 8, 144 * 96)
    assert (operations["ψ"], operations["layers"]) == (9 * 16 * 8 * 96, round(2 * edges * 64))
    took = {row["stage"]: float(row["µs per window"]) for row in table.rows[:7]}
    (longest,) = [name for name in took if f"measured, {name} takes longest" in table.note]
    assert took[longest] == max(took.values()) > 0


@pytest.mark.parametrize(("arch", "options"), [("ntrm-control", {}), ("ntrm-paper", {"graph": "none"})])
def test_networks_without_a_graph_have_no_stages(arch, options):
    network = create(arch, SKIN, width=0.125, **options)
    assert stages_table(Predictor(network, "cpu"), [np.zeros((64, 64, 3), np.uint8)]) is None
