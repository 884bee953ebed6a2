"""Analysis of a label mask, without a network: regions, tissue graph, cancers, margins, depth. For research only."""

from ntrm.regions.cancers import cancer_types

__all__ = ["cancer_types"]
