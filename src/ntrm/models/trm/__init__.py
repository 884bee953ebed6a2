"""The Tissue Relation Module: regions → nodes → edges → message passing → projection."""

from ntrm.models.trm.module import RelationConfig, TissueRelation

__all__ = ["RelationConfig", "TissueRelation"]
