"""The tissue relation module: probabilities → masks and nodes → edges → message passing → projection."""

from ntrm.models.trm.module import RelationConfig, TissueRelation, class_probabilities, trains_edge_weights

__all__ = ["RelationConfig", "TissueRelation", "class_probabilities", "trains_edge_weights"]
