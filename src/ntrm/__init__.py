"""NTRM: tissue segmentation of H&E skin sections with a graph of tissue relations."""

import importlib as _importlib
import typing as _typing

from ntrm.version import __version__

if _typing.TYPE_CHECKING:
    from ntrm.analysis.graph import tissue_graph
    from ntrm.core.errors import NtrmError
    from ntrm.core.labels import SKIN
    from ntrm.evaluation.evaluate import evaluate
    from ntrm.inference.predictor import Predictor
    from ntrm.models.hub import load
    from ntrm.models.registry import create, list_models
    from ntrm.pipeline.batch import segment_slides
    from ntrm.results.tables import read_results
    from ntrm.training.train import train
    from ntrm.wsi.isolated import open_slide

__all__ = [
    "SKIN",
    "NtrmError",
    "Predictor",
    "__version__",
    "create",
    "evaluate",
    "list_models",
    "load",
    "open_slide",
    "read_results",
    "segment_slides",
    "tissue_graph",
    "train",
]

_HOME = {
    "NtrmError": "core.errors",
    "Predictor": "inference.predictor",
    "SKIN": "core.labels",
    "create": "models.registry",
    "evaluate": "evaluation.evaluate",
    "list_models": "models.registry",
    "load": "models.hub",
    "open_slide": "wsi.isolated",
    "read_results": "results.tables",
    "segment_slides": "pipeline.batch",
    "tissue_graph": "analysis.graph",
    "train": "training.train",
}


def __getattr__(name: str) -> _typing.Any:
    # Torch takes seconds to import; `ntrm --help` must not wait for it.
    if name not in _HOME:
        raise AttributeError(f"module 'ntrm' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"ntrm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
