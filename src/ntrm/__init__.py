"""NTRM: tissue segmentation of H&E skin sections with a graph of tissue relations."""

import importlib as _importlib
import typing as _typing

from ntrm.version import __version__

if _typing.TYPE_CHECKING:
    from ntrm.core.errors import NtrmError
    from ntrm.core.labels import SKIN, LabelSchema
    from ntrm.data.layouts import open_dataset
    from ntrm.data.tensors import TileDataset
    from ntrm.evaluation.calibrate import calibrate
    from ntrm.evaluation.compare import compare
    from ntrm.evaluation.evaluate import evaluate
    from ntrm.export.onnx import export_onnx
    from ntrm.models.base import normalise
    from ntrm.models.predictor import Predictor
    from ntrm.models.registry import create, list_models, load
    from ntrm.regions.graph import tissue_graph
    from ntrm.results.tables import read_results
    from ntrm.segment.batch import segment_slides
    from ntrm.slides.isolated import open_slide
    from ntrm.training.train import train

__all__ = [
    "SKIN",
    "LabelSchema",
    "NtrmError",
    "Predictor",
    "TileDataset",
    "__version__",
    "calibrate",
    "compare",
    "create",
    "evaluate",
    "export_onnx",
    "list_models",
    "load",
    "normalise",
    "open_dataset",
    "open_slide",
    "read_results",
    "segment_slides",
    "tissue_graph",
    "train",
]

_HOME = {
    "LabelSchema": "core.labels",
    "NtrmError": "core.errors",
    "Predictor": "models.predictor",
    "SKIN": "core.labels",
    "TileDataset": "data.tensors",
    "calibrate": "evaluation.calibrate",
    "compare": "evaluation.compare",
    "create": "models.registry",
    "evaluate": "evaluation.evaluate",
    "export_onnx": "export.onnx",
    "list_models": "models.registry",
    "load": "models.registry",
    "normalise": "models.base",
    "open_dataset": "data.layouts",
    "open_slide": "slides.isolated",
    "read_results": "results.tables",
    "segment_slides": "segment.batch",
    "tissue_graph": "regions.graph",
    "train": "training.train",
}


def __getattr__(name: str) -> _typing.Any:
    # Torch takes seconds to import; `ntrm --help` must not wait for it.
    if name not in _HOME:
        raise AttributeError(f"module 'ntrm' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"ntrm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
