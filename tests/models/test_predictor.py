import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.evaluation.small import COLOURS, MPP, ByColour

import ntrm
from ntrm.core.devices import choose_precision
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.config import ModelConfig, schema_for
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.windows import stitch

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Colours(SegmentationModel):
    """Three classes whose logits are the red, green and blue it sees; remembers the batches it was given."""

    def __init__(self, largest=10_000, error=None, **facts):
        super().__init__()
        self.config = ModelConfig("colours", schema_for(3), **facts)
        self.largest, self.error = largest, error or torch.OutOfMemoryError("simulated")
        self.batches = []

    def segment(self, x, *, coarse, graph):
        self.batches.append(len(x))
        if len(x) > self.largest:
            raise self.error
        return Segmentation(x)


def draw(random, *sizes):
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]


@pytest.fixture(scope="module")
def thin():
    torch.manual_seed(1)
    return create("ntrm-paper", SKIN, width=0.125, dim=16).describe(temperature=1.3)


@given(height=st.integers(1, 70), width=st.integers(1, 45), seed=st.integers(0, 2**31))
@settings(max_examples=8)
def test_any_size_comes_back_at_its_own_size(thin, height, width, seed):
    (image,) = draw(np.random.default_rng(seed), (height, width))
    found = Predictor(thin, "cpu").predict(image, coarse=True)
    assert found.probabilities.shape == found.coarse.shape == (12, height, width)
    assert (found.probabilities.dtype, found.mask.dtype) == (np.float32, np.uint8)
    np.testing.assert_allclose(found.probabilities.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(found.coarse.sum(axis=0), 1, atol=1e-5)
    assert np.array_equal(found.mask, found.probabilities.argmax(axis=0))
    assert np.array_equal(found.coarse_mask, found.coarse.argmax(axis=0))
    assert np.array_equal(found.confidence, np.take_along_axis(found.probabilities, found.mask[None], 0)[0])


def test_it_is_the_network_on_normalised_pixels_with_white_glass_around(thin, random):
    (image,) = draw(random, (50, 33))
    x = np.ones((64, 64, 3))
    x[:50, :33] = image / 255
    x = (x - thin.config.mean) / thin.config.std
    with torch.no_grad():
        out = thin.eval()(torch.tensor(x.transpose(2, 0, 1)[None], dtype=torch.float32), graph=True)
    found = Predictor(thin, "cpu").predict(image, coarse=True, graph=True)
    final = torch.softmax(out.final[0, :, :50, :33].double() / 1.3, dim=0).numpy()
    np.testing.assert_allclose(found.probabilities, final, **CLOSE)
    np.testing.assert_allclose(found.coarse, torch.softmax(out.coarse[0, :, :50, :33], dim=0), **CLOSE)
    assert found.graph.edge_weights is None  # this variant does not train them
    for name, tensor in out.graph._asdict().items():
        if name != "edge_weights":
            np.testing.assert_allclose(getattr(found.graph, name), tensor[0], **CLOSE, err_msg=name)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "python"],
)
def test_the_batch_is_halved_when_memory_runs_out_and_stays_so(error, random):
    network = Colours(largest=2, error=error)
    images = draw(random, *[(8, 8)] * 11)
    predictor = Predictor(network, "cpu", batch=8)
    found = predictor.predict(images)
    assert predictor.batch == 2
    assert network.batches == [8, 4, 2, 2, 2, 2, 2, 1]
    for image, prediction in zip(images, found, strict=True):
        assert np.array_equal(prediction.probabilities, Predictor(Colours(), "cpu").predict(image).probabilities)
    network.batches.clear()
    predictor.predict(images[:4])
    assert network.batches == [2, 2]
    with pytest.raises(NtrmError, match=r"(?s)single image.*32 × 32 pixels.*windows of 256") as caught:
        Predictor(Colours(largest=0, error=error), "cpu").predict(images[:2])
    assert caught.value.__cause__ is error


REFUSED = {
    "float": np.zeros((4, 4, 3), dtype=np.float32),
    "grey": np.zeros((4, 4), dtype=np.uint8),
    "five channels": np.zeros((4, 4, 5), dtype=np.uint8),
    "empty": np.zeros((0, 4, 3), dtype=np.uint8),
    "list": [[1, 2, 3]],
    "bfloat16": torch.zeros(3, 4, 4, dtype=torch.bfloat16),
    "16-bit picture": Image.fromarray(np.zeros((4, 4), np.uint16)),
    "nothing": None,
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_rgb_image_is_refused(case):
    with pytest.raises(UsageError, match="expected"):
        Predictor(Colours(), "cpu").predict(REFUSED[case])


def test_what_it_cannot_do_is_refused(thin, random):
    (image,), (large,) = draw(random, (32, 32)), draw(random, (300, 32))
    with pytest.raises(UsageError, match=r"(?s)colours has no relation module.*ntrm\.tissue_graph"):
        Predictor(Colours(), "cpu").predict(image, graph=True)
    with pytest.raises(UsageError, match=r"(?s)window by window.*300 × 32 pixels.*256 × 256"):
        Predictor(thin, "cpu").predict(large, graph=True)
    with pytest.raises(UsageError, match=r"(?s)unknown precision.*int4.*bfloat16"):
        Predictor(Colours(), "cpu", precision="int4")
    with pytest.raises(UsageError, match="batch"):
        Predictor(Colours(), "cpu", batch=0)


def test_an_image_larger_than_the_window_is_predicted_as_a_section_is(random):
    torch.manual_seed(2)
    network = create("ntrm-paper", SKIN, width=0.125, dim=16).describe(window=64)
    predictor = Predictor(network, "cpu")
    small, large = draw(random, (64, 64), (100, 150))
    found = predictor.predict([small, large], coarse=True)
    assert np.array_equal(found[0].probabilities, predictor.predict(small).probabilities)
    section = stitch(predictor, large, coarse=True, probabilities=True)
    np.testing.assert_array_equal(found[1].probabilities, section.probabilities)
    np.testing.assert_array_equal(found[1].mask, section.mask)
    np.testing.assert_array_equal(found[1].coarse_mask, section.coarse_mask)


def test_a_network_in_training_predicts_in_evaluation_mode_and_stays_in_training(random):
    network = create("ntrm-control", 3, width=0.125)
    predictor, images = Predictor(network, "cpu"), draw(random, *[(64, 64)] * 3)
    expected = predictor.predict(images[0]).probabilities
    network.train().encoder.bn1.eval()  # frozen statistics in a network that is trained
    before = {key: value.clone() for key, value in network.state_dict().items()}
    assert np.array_equal(predictor.predict(images[0]).probabilities, expected)
    np.testing.assert_allclose(predictor.predict(images)[0].probabilities, expected, **CLOSE)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert [name for name, layer in network.named_modules() if not layer.training] == ["encoder.bn1"]


def test_what_a_network_is_described_as_later_counts(random):
    network, (image,) = Colours(), draw(random, (40, 40))
    predictor = Predictor(network, "cpu")
    predictor.predict(image)
    network.describe(temperature=5.0, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), window=32)
    found, other = predictor.predict(image), Predictor(Colours(), "cpu").predict(image)
    logits = (image / 255 - (0.1, 0.2, 0.3)) / (0.5, 0.6, 0.7) / 5
    expected = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found.probabilities, expected.transpose(2, 0, 1), **CLOSE)
    assert np.abs(found.probabilities - other.probabilities).max() > 0.1
    assert max(network.batches) > 1  # in windows of the new size


@pytest.mark.parametrize("own", [True, False])
def test_a_network_in_other_numbers_or_a_rougher_precision_still_gives_float32_that_sums_to_one(
    own, random, monkeypatch
):
    monkeypatch.setattr("ntrm.core.devices.cpu_has_bfloat16", lambda: True)  # imitated where it is not so
    network, images = create("ntrm-paper", 3, width=0.125, dim=16, edge_weight=True), draw(random, *[(64, 40)] * 2)
    exact = Predictor(network, "cpu").predict(images, coarse=True, graph=True)
    predictor = Predictor(network.to(torch.bfloat16), "cpu") if own else Predictor(network, "cpu", precision="bfloat16")
    found = predictor.predict(images, coarse=True, graph=True)
    assert next(network.parameters()).dtype == (torch.bfloat16 if own else torch.float32)
    for one, other in zip(exact, found, strict=True):
        assert other.probabilities.dtype == other.coarse.dtype == other.graph.edge_weights.dtype == np.float32
        np.testing.assert_allclose(other.probabilities.sum(axis=0), 1, atol=1e-5)
        assert 0 < np.abs(other.coarse - one.coarse).mean() < 0.05


@pytest.mark.slow
def test_compiled_networks_are_taken_and_parallel_ones_refused_with_a_hint(random):
    network, (image,) = create("ntrm-control", 3, width=0.125), draw(random, (64, 64))
    expected = Predictor(network, torch.device("cpu")).predict(image).probabilities
    predictor = Predictor(torch.compile(network.train(), backend="eager"), "cpu")
    network.train()
    np.testing.assert_allclose(predictor.predict(image).probabilities, expected, **CLOSE)
    assert network.training
    with pytest.raises(UsageError, match=r"DataParallel(.|\n)*\.module"):
        Predictor(torch.nn.DataParallel(network), "cpu")


def test_a_picture_and_a_tensor_are_the_array(thin, random):
    (image,), predictor = draw(random, (40, 33)), Predictor(thin, "cpu")
    expected = predictor.predict(image).probabilities
    (beside, *_) = Predictor(thin, "cpu", batch=3).predict([image, *draw(random, (64, 33), (1, 1), (40, 33))])
    np.testing.assert_allclose(beside.probabilities, expected, **CLOSE)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    for same in (Image.fromarray(image), Image.fromarray(image).convert("RGBA"), tensor, torch.from_numpy(image)):
        assert np.array_equal(predictor(same).probabilities, expected)
    assert [np.array_equal(one.probabilities, expected) for one in predictor(tensor[None])] == [True]
    assert [one.mask.shape for one in predictor(np.stack([image, image]))] == [(40, 33)] * 2
    assert predictor([]) == []
    alpha = np.full((40, 33, 1), 255, np.uint8)
    alpha[:20] = 0  # what is transparent is white
    white = predictor(np.where(alpha > 0, image, np.uint8(255))).probabilities
    assert np.array_equal(predictor(np.dstack([image, alpha])).probabilities, white)
    palette = Image.fromarray(image).quantize(7)
    (mixed,) = predictor([palette])
    assert np.array_equal(mixed.probabilities, predictor(np.asarray(palette.convert("RGB"))).probabilities)


def test_a_file_is_read_at_the_networks_resolution_which_is_never_guessed(random, tmp_path, monkeypatch):
    mask = random.integers(0, 4, (9, 13)).astype(np.uint8)
    painted = np.array(COLOURS, dtype=np.uint8)[np.kron(mask, np.ones((8, 8), np.uint8))]
    predictor = Predictor(ByColour(), "cpu")
    write_image(tmp_path / "fine.tif", painted, Resolution.square(MPP / 2))
    fine = predictor(tmp_path / "fine.tif").mask
    assert np.array_equal(fine, np.kron(mask, np.ones((4, 4), np.uint8)))
    assert np.array_equal(predictor([str(tmp_path / "fine.tif")])[0].mask, fine)
    monkeypatch.setattr("ntrm.models.predictor.MAX_READ_PIXELS", fine.size - 1)
    with pytest.raises(RefusedError, match=r"(?s)fine\.tif is too large.*36 × 52.*segment_slides"):
        predictor(tmp_path / "fine.tif")
    Image.fromarray(painted).save(tmp_path / "a.png")
    with pytest.raises(RefusedError, match=r"(?s)a\.png does not state its µm/px.*6\.7.*segment_slides"):
        predictor(tmp_path / "a.png")
    with pytest.raises(RefusedError, match="the network does not state"):
        Predictor(ByColour().describe(mpp=None), "cpu")(tmp_path / "a.png")
    with pytest.raises(DataError, match="No such file"):
        predictor("nothing.svs")


@pytest.mark.parametrize("network", [torch.nn.Conv2d(3, 3, 1), "run/model"], ids=["plain", "path"])
def test_what_is_no_network_of_ours_is_refused(network, tmp_path):
    for use in (
        lambda: Predictor(network, "cpu"),
        lambda: ntrm.normalise(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), network),
        lambda: ntrm.export_onnx(network, tmp_path / "a.onnx"),
    ):
        with pytest.raises(UsageError, match=r"(?s)does not say what it predicts.*ntrm\.create"):
            use()


def test_a_broken_network_is_refused(random):
    thin = create("ntrm-control", 3, width=0.125)
    torch.nn.init.constant_(thin.classify.bias, torch.nan)
    for size in (8, thin.config.window + 1):
        with pytest.raises(NtrmError, match=r"(?s)not numbers.*float32"):
            Predictor(thin, "cpu").predict(*draw(random, (8, size)))


def test_the_precision_is_what_the_device_does_well(monkeypatch):
    for supported, best in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda supported=supported, **_: supported)
        assert choose_precision("auto", torch.device("cuda")) == best
    assert choose_precision("auto", torch.device("mps")) == torch.float32
    assert choose_precision("float16", torch.device("cpu")) == torch.float16


@cuda_only
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_the_gpu_agrees_with_the_cpu(compiled, random, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # its ten bits are no float32
    network = create("ntrm-control", 5, width=0.25)
    images = draw(random, (64, 64), (40, 50), (64, 64))
    exact = Predictor(network, "cpu").predict(images)
    network = torch.compile(network) if compiled else network
    close = Predictor(network, "cuda", precision="float32").predict(images)
    quick = Predictor(network, "cuda").predict(images)
    for cpu, full, auto in zip(exact, close, quick, strict=True):
        np.testing.assert_allclose(full.probabilities, cpu.probabilities, atol=5e-3)
        assert np.abs(auto.probabilities - cpu.probabilities).mean() < 0.02


def test_a_recolouring_predictor_sees_other_colours_and_the_one_it_came_from_does_not(random):
    predictor = Predictor(ByColour(), "cpu")
    image = random.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    matrix = [[0.5, 0.2, 0.0], [0.0, 1.1, 0.1], [0.3, 0.0, 0.6]]
    before = predictor.predict(image)
    found = predictor.recolouring(matrix).predict(image)
    density = -np.log((image.astype(float) + 1) / 256) @ np.array(matrix).T
    seen = 256 * np.exp(-np.clip(density, 0, np.log(256))) - 1
    logits = -30 * (((seen[:, :, None] - np.array(COLOURS)) / 255) ** 2).sum(axis=3)
    expected = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found.probabilities, expected.transpose(2, 0, 1), atol=1e-4)
    assert (predictor.predict(image).probabilities == before.probabilities).all()
