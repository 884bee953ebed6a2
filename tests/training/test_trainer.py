import pytest
import torch
from tests.training.small_data import small_recipe

from ntrm.core.errors import NtrmError, UsageError
from ntrm.training.engine import pl
from ntrm.training.launch import Launch
from ntrm.training.trainer import fast_matrices, make_trainer, memory_explained, ran_out_of_memory, sound_attention

CPU = torch.device("cpu")


def test_the_trainer_writes_and_shows_nothing_of_its_own(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("ntrm.core.devices.cpu_has_bfloat16", lambda: True)
    callback = pl.Callback()
    trainer = make_trainer(small_recipe(precision="bfloat16", gradient_clip=2), Launch(CPU), tmp_path, callback)
    assert trainer.callbacks == [callback]
    assert trainer.loggers == []
    assert trainer.precision == "bf16-mixed"
    assert trainer.gradient_clip_val == 2
    assert list(tmp_path.iterdir()) == []
    assert "it/s" not in capfd.readouterr().err


def test_float16_needs_a_gpu(tmp_path):
    with pytest.raises(UsageError, match="GPU alone"):
        make_trainer(small_recipe(precision="float16"), Launch(CPU), tmp_path, pl.Callback())


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
        assert advice in caught.value.mend
    assert "batch 32" in str(caught.value.got)


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="something else"), memory_explained(small_recipe(), CPU):
        raise RuntimeError("something else")


def test_advice_stays_possible():
    with pytest.raises(NtrmError) as caught, memory_explained(small_recipe(batch=1, window=32), CPU):
        raise MemoryError
    assert "batch=1," in caught.value.mend
    assert "window=32," in caught.value.mend


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
