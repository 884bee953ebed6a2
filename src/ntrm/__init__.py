"""NTRM: tissue segmentation of H&E skin sections with a graph of tissue relations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ntrm.version import __version__

if TYPE_CHECKING:
    from ntrm.inference.predictor import Predictor
    from ntrm.models.hub import load, save_pretrained
    from ntrm.models.registry import create
    from ntrm.pipeline.batch import segment
    from ntrm.results.tables import read_results

__all__ = ["Predictor", "__version__", "create", "load", "read_results", "save_pretrained", "segment"]

_HOME = {
    "Predictor": "ntrm.inference.predictor",
    "create": "ntrm.models.registry",
    "load": "ntrm.models.hub",
    "read_results": "ntrm.results.tables",
    "save_pretrained": "ntrm.models.hub",
    "segment": "ntrm.pipeline.batch",
}


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import; `ntrm --help` must not wait for it.
    if name not in _HOME:
        raise AttributeError(f"module 'ntrm' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
