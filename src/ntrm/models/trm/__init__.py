"""The tissue relation module: probabilities → masks and nodes → edges → message passing → projection."""

from ntrm.models.trm.module import RelationConfig, TissueRelation, class_probabilities, trains_edge_weights
from ntrm.models.trm.released import ReleasedRelation

__all__ = ["RelationConfig", "ReleasedRelation", "TissueRelation", "class_probabilities", "trains_edge_weights"]
