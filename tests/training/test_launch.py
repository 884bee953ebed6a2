import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.training.launch import Launch, find_launch, under_slurm

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NNODES": "2"}


def place(device, num_devices, environment):
    launch = find_launch(device, num_devices, environment)
    return launch.rank, launch.world, launch.local_world, launch.nodes, launch.leads


@pytest.mark.parametrize(
    ("num_devices", "environment", "expected"),
    [
        (1, {}, (0, 1, 1, 1, True)),
        (2, {}, (0, 2, 2, 1, True)),
        (2, {"LOCAL_RANK": "1"}, (1, 2, 2, 1, False)),
        (1, {"LOCAL_RANK": "1"}, (0, 1, 1, 1, True)),  # of a launcher that is not ours
        (1, TORCHRUN, (5, 8, 4, 2, False)),
        (4, TORCHRUN, (5, 8, 4, 2, False)),
        (1, SLURM, (3, 4, 2, 2, False)),
        (1, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1, 1, 1, True)),
    ],
)
def test_the_place_among_processes(num_devices, environment, expected):
    assert place("cpu", num_devices, environment) == expected


def test_two_numbers_of_devices_are_refused():
    with pytest.raises(UsageError, match="two numbers"):
        find_launch("cpu", 2, TORCHRUN)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_impossible_numbers_are_refused(count):
    with pytest.raises(UsageError, match="number of devices"):
        find_launch("cpu", count, {})


def test_machines_must_be_alike():
    with pytest.raises(UsageError, match="machines differ"):
        Launch(torch.device("cpu"), rank=0, world=5, local_world=2)


@pytest.mark.parametrize(("rank", "world", "local"), [(2, 2, 1), (-1, 1, 1), (0, 1, 2)])
def test_impossible_places_are_refused(rank, world, local):
    with pytest.raises(UsageError, match="impossible place"):
        Launch(torch.device("cpu"), rank, world, local)


def test_each_process_gets_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert find_launch("cuda", 1, TORCHRUN).device == torch.device("cuda", 1)
    assert find_launch("auto", 1, {}).device == torch.device("cuda")
    assert find_launch("cuda:2", 1, {}).device == torch.device("cuda", 2)
    with pytest.raises(UsageError, match="one device for several"):
        find_launch("cuda:2", 2, {})
    with pytest.raises(UsageError, match="not enough devices"):
        find_launch("cuda", 5, {})


def test_slurm_counts_where_it_started_several():
    assert under_slurm(SLURM)
    assert not under_slurm({"SLURM_JOB_ID": "1"})
