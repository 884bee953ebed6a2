"""NTRM: tissue segmentation of H&E skin sections with a graph of tissue relations."""

from ntrm.version import __version__

__all__ = ["__version__"]
