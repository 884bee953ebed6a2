"""NTRM: tissue segmentation of H&E skin sections with a graph of tissue relations."""

import importlib as _importlib
import typing as _typing

from ntrm.version import __version__

if _typing.TYPE_CHECKING:
    from ntrm.core.errors import NtrmError as NtrmError
    from ntrm.core.labels import SKIN as SKIN
    from ntrm.core.labels import LabelSchema as LabelSchema
    from ntrm.data.layouts import open_dataset as open_dataset
    from ntrm.data.tensors import TileDataset as TileDataset
    from ntrm.evaluation.calibrate import calibrate as calibrate
    from ntrm.evaluation.compare import compare as compare
    from ntrm.evaluation.evaluate import evaluate as evaluate
    from ntrm.export.onnx import export_onnx as export_onnx
    from ntrm.models.base import normalise as normalise
    from ntrm.models.predictor import Predictor as Predictor
    from ntrm.models.registry import create as create
    from ntrm.models.registry import list_models as list_models
    from ntrm.models.registry import load as load
    from ntrm.regions.graph import tissue_graph as tissue_graph
    from ntrm.results.tables import read_results as read_results
    from ntrm.segment.batch import segment_slides as segment_slides
    from ntrm.slides.isolated import open_slide as open_slide
    from ntrm.training.train import train as train

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
__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> _typing.Any:
    # Torch takes seconds to import; `ntrm --help` must not wait for it.
    if name not in _HOME:
        raise AttributeError(f"module 'ntrm' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"ntrm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
