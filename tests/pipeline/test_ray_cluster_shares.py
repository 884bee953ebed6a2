import pytest

from ntrm.core.errors import UsageError
from ntrm.pipeline.ray_cluster import Share, share_out


@pytest.mark.parametrize(
    ("resources", "device", "workers", "expected"),
    [
        ({"CPU": 2.0}, "auto", None, Share(1, "cpu", 2, 0.0)),
        ({"CPU": 2.0}, "cpu", 2, Share(2, "cpu", 1, 0.0)),
        ({"CPU": 64.0}, "auto", None, Share(32, "cpu", 2, 0.0)),
        ({"CPU": 64.0}, "auto", 4, Share(4, "cpu", 2, 0.0)),
        ({"CPU": 64.0, "GPU": 8.0}, "auto", None, Share(8, "cuda", 1, 1.0)),
        ({"CPU": 64.0, "GPU": 8.0}, "cuda", 3, Share(3, "cuda", 1, 1.0)),
        ({"CPU": 64.0, "GPU": 8.0}, "cpu", None, Share(32, "cpu", 2, 0.0)),
        ({"GPU": 1.0}, "auto", 2, Share(2, "cuda", 1, 0.5)),
    ],
)
def test_a_worker_for_each_gpu_or_for_two_cores(resources, device, workers, expected):
    assert share_out(resources, device, workers) == expected


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_the_shares_of_all_workers_fit_on_whole_cards(gpus):
    for workers in range(1, 30):
        share = share_out({"CPU": 99, "GPU": gpus}, "auto", workers)
        on_one_card = int(1 / share.gpus + 1e-9)
        assert on_one_card * gpus >= workers


@pytest.mark.parametrize(
    ("resources", "device", "workers"),
    [
        ({"CPU": 4}, "cuda", None),
        ({"CPU": 4, "GPU": 2}, "cuda:1", None),
        ({"CPU": 4}, "auto", 0),
        ({"CPU": 4}, "mps", 1),
    ],
)
def test_what_cannot_be_shared_is_refused(resources, device, workers):
    with pytest.raises(UsageError):
        share_out(resources, device, workers)
