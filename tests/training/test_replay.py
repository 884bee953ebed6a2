"""Recording the network: the same training, on a GPU."""

import pytest
import torch

from ntrm.models.registry import create
from ntrm.training.losses import SegmentationLoss
from ntrm.training.replay import recorded

cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@cuda_only
@pytest.mark.parametrize("arch", ["ntrm-paper", "ntrm-control", "unet-resnet18", "deeplabv3plus", "mit-b0"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_a_recorded_network_learns_as_the_network_itself(arch, half, seed):
    torch.manual_seed(seed)
    options = {"drop_path": 0.0} if arch == "mit-b0" else {}
    plain = create(arch, 5, **options).cuda().train()
    twin = create(arch, 5, **options).cuda().train()
    twin.load_state_dict(plain.state_dict())
    images = torch.randn(4, 2, 3, 64, 64, device="cuda")
    masks = torch.randint(5, (4, 2, 64, 64), device="cuda")
    losses = {}
    for name, network in (("plain", plain), ("recorded", twin)):
        for key in network.without_gradient():
            network.get_parameter(key).requires_grad_(False)
        criterion = SegmentationLoss(5).cuda()
        learned = [p for p in network.parameters() if p.requires_grad]
        optimiser = torch.optim.SGD(learned, lr=1e-3)
        forward = network
        losses[name] = []
        for step in range(4):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
                if name == "recorded" and step == 0:
                    forward = recorded(network, images[0])
                loss = criterion(forward(images[step]), masks[step]).total
            loss.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses[name].append(float(loss.detach()))
    close = 5e-2 if half else 2e-3
    assert losses["recorded"] == pytest.approx(losses["plain"], rel=close)
    assert losses["plain"][0] != losses["plain"][1]
    for (key, value), other in zip(plain.state_dict().items(), twin.state_dict().values(), strict=True):
        if key.endswith("num_batches_tracked"):
            assert value == other == 4, key
        else:
            torch.testing.assert_close(other, value, rtol=close, atol=close, msg=lambda text, key=key: f"{key}: {text}")


@cuda_only
def test_recording_leaves_the_statistics_as_they_were(seed):
    torch.manual_seed(seed)
    network = create("ntrm-control", 3, width=0.25).cuda().train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    recorded(network, torch.randn(2, 3, 64, 64, device="cuda"))
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), key
