import importlib.util
import json
import sys
from functools import partial

import numpy as np
import pytest
import torch
from tests.helpers import Convolution
from tests.models.shallow import shallow

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.export.onnx import AGREEMENT, TOLERANCE, export_onnx
from ntrm.models.config import ModelConfig
from ntrm.models.predictor import Predictor
from ntrm.models.registry import ARCHITECTURES, create

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnxscript")),
    reason="extra export is not installed",
)

__all__ = ["shallow"]

COVERED = ("ntrm-control", "unet-resnet18", "unet-vgg16", "mit-b0", "mit-b2")
"""Architectures all of whose calls another one makes, too: an export takes its time."""
OPTIONS = {
    "ntrm-paper": {"layers": 1, "dim": 16, "nodes": "region"},
    "mit-trm": {"layers": 2, "dim": 16, "masks": "soft", "layer": "sum", "absent": "linked"},
}


def small_network():
    network = Convolution(12, size=3)
    network.config = ModelConfig("small", SKIN, mpp=6.7, window=64, temperature=1.5)
    return network


def opened(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A network, the report of its export, and what torch exported."""
    network, path, export, programs = small_network(), tmp_path_factory.mktemp("small"), torch.onnx.export, []

    def keep(*args, **options):
        programs.append(export(*args, **options))
        return programs[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", keep)
        return network, export_onnx(network, path / "deeper" / "small.onnx"), programs[0]


@pytest.fixture
def exported(small, monkeypatch):
    """Exporting takes seconds: what torch made of the network once serves again."""
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: small[2])
    return small[0]


def test_the_file_computes_what_the_network_computes(small, seed):
    network, report, _ = small
    torch.manual_seed(seed)
    session = opened(report.path)
    assert [(port.name, port.shape) for port in session.get_inputs()] == [("image", ["batch", 3, 64, 64])]
    assert [(port.name, port.shape) for port in session.get_outputs()] == [("final", ["batch", 12, 64, 64])]
    for batch in (1, 2, 5):
        image = torch.randn(batch, 3, 64, 64)
        (final,) = session.run(None, {"image": image.numpy()})
        np.testing.assert_allclose(final, network(image).final.detach(), rtol=1e-4, atol=1e-5)


def test_names_scale_and_origin_travel_with_the_file(small, tmp_path, monkeypatch):
    network, report, _ = small
    monkeypatch.setitem(ARCHITECTURES, "small", partial(Convolution, size=3))
    metadata = opened(report.path).get_modelmeta().custom_metadata_map
    assert json.loads(metadata["class_names"]) == list(SKIN.names)
    assert [json.loads(metadata[key]) for key in ("mpp", "window", "temperature")] == [6.7, 64, 1.5]
    assert json.loads(metadata["mean"]) == list(network.config.mean)
    assert metadata["arch"] == "small"
    assert metadata["model_sha256"] == report.model_sha256 == network.save_pretrained(tmp_path)


def test_nothing_else_is_written_and_the_network_stays_as_it_was(small):
    network, report, _ = small
    assert [path.name for path in report.path.parent.iterdir()] == ["small.onnx"]
    assert 0 <= report.difference < TOLERANCE
    assert AGREEMENT <= report.agreement <= 1
    assert json.loads(json.dumps(report.as_dict()))["path"] == str(report.path)
    content = report.path.read_bytes()  # without any path of this machine
    assert b"stack_trace" not in content
    assert b".py" not in content
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_a_file_that_differs_is_refused_and_leaves_nothing(exported, tmp_path):
    with pytest.raises(RefusedError, match=r"(?s)logits differ by.*expected: at most -1"):
        export_onnx(exported, tmp_path / "small.onnx", tolerance=-1)
    with pytest.raises(RefusedError, match="logits differ by"):
        export_onnx(small_network(), tmp_path / "small.onnx")  # has other weights
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("exported")
def test_nan_never_passes_for_equal(tmp_path):
    network = small_network()
    torch.nn.init.constant_(network.conv.bias, torch.nan)
    with pytest.raises(RefusedError, match="differ by nan"):
        export_onnx(network, tmp_path / "small.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("x.onnx", {"window": 50}, "multiples of 32"),
        ("x.onnx", {"opset": 999}, r"(?s)opset.*got: +999"),
        ("x.onnx", {"seed": 2**64}, "impossible seed"),
        ("cases.csv", {}, r"ends in \.onnx"),
    ],
)
def test_impossible_calls_are_refused_and_write_nothing(tmp_path, name, options, match):
    (tmp_path / "cases.csv").write_text("name,group\n")
    with pytest.raises(UsageError, match=match):
        export_onnx(small_network(), tmp_path / name, **options)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["name,group\n"]


def test_without_the_extra_the_command_to_get_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"ntrm\[export\]"):
        export_onnx(small_network(), tmp_path / "x.onnx")


@pytest.mark.slow
@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - set(COVERED)))
def test_every_architecture_is_the_same_in_onnxruntime(name, tmp_path, seed):
    if name.startswith("mit") and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (extra mit)")
    torch.manual_seed(seed)
    side = 32 if name == "ntrm-paper" else 64  # finding regions is written out as many rounds as the grid may need
    network = create(name, 5, width=0.125, **OPTIONS.get(name, {})).describe(window=side)
    Predictor(network, "cpu")  # leaves the weights in another memory layout, which the file must not inherit
    report = export_onnx(network, tmp_path / "network.onnx", seed=seed)
    image = torch.randn(2, 3, side, side)
    expected = network(image)
    found = opened(report.path).run(None, {"image": image.numpy()})
    for theirs, ours in zip(found, expected[: len(found)], strict=True):
        agree = theirs.argmax(axis=1) == ours.argmax(dim=1).numpy()
        assert agree.mean() > AGREEMENT
    assert report.outputs == (("final",) if expected.coarse is None else ("final", "coarse"))
