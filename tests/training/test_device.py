import pytest
import torch
from tests.training.small_data import small_recipe

from ntrm.core.errors import NtrmError, UsageError
from ntrm.training.device import (
    autocast,
    fast_matrices,
    memory_explained,
    ran_out_of_memory,
    sound_attention,
    training_precision,
    tuned,
)

CPU = torch.device("cpu")


def test_networks_run_in_the_precision_of_the_recipe(monkeypatch):
    monkeypatch.setattr("ntrm.core.devices.cpu_has_bfloat16", lambda: True)
    kind = training_precision(small_recipe(precision="bfloat16"), CPU)
    assert kind == torch.bfloat16
    one = torch.ones(2, 2)
    with autocast(kind, CPU):
        assert (one @ one).dtype == torch.bfloat16
    with autocast(torch.float32, CPU):
        assert (one @ one).dtype == torch.float32


def test_float16_needs_a_gpu():
    with pytest.raises(UsageError, match="GPU alone"):
        training_precision(small_recipe(precision="float16"), CPU)


@pytest.mark.parametrize("before", [True, False])
def test_the_fastest_kernel_is_looked_for_on_a_gpu_and_the_choice_put_back(before, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    with pytest.raises(NtrmError, match="memory of cpu"), tuned(small_recipe(), CPU):
        raise MemoryError
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory"),
        MemoryError(),
    ],
)
def test_running_out_of_memory_says_what_to_lower(error):
    assert ran_out_of_memory(error)
    with (
        pytest.raises(NtrmError, match="memory of cpu ran out") as caught,
        memory_explained(small_recipe(batch=32, window=256), CPU),
    ):
        raise error
    for advice in ("batch=16", "window=128", "resident=no"):
        assert advice in caught.value.hint
    assert "batch 32" in str(caught.value.got)


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="something else"), memory_explained(small_recipe(), CPU):
        raise RuntimeError("something else")


def test_advice_stays_possible():
    with pytest.raises(NtrmError) as caught, memory_explained(small_recipe(batch=1, window=32), CPU):
        raise MemoryError
    assert "batch=1," in caught.value.hint
    assert "window=32," in caught.value.hint


@pytest.mark.parametrize(
    ("precision", "device", "inside"),
    [
        ("auto", "cuda", "high"),
        ("bfloat16", "cuda", "high"),
        ("float32", "cuda", "highest"),
        ("auto", "cpu", "highest"),
    ],
)
def test_shorter_products_only_where_the_recipe_allows_them(precision, device, inside):
    before = torch.get_float32_matmul_precision()
    with fast_matrices(small_recipe(precision=precision), torch.device(device)):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == before == "highest"


@pytest.mark.parametrize("enabled", [True, False])
def test_attention_keeps_off_the_kernel_that_is_wrong_and_leaves_the_choice_as_it_was(enabled, request):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    request.addfinalizer(lambda: torch.backends.cuda.enable_cudnn_sdp(before))
    torch.backends.cuda.enable_cudnn_sdp(enabled)
    with sound_attention():
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() is enabled
