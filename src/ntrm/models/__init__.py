"""Networks: blocks → encoder → decoder → tissue relation module → NTRM and the systems it is compared with."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntrm.models.trm import RelationConfig, TissueRelation

__all__ = ["RelationConfig", "TissueRelation"]


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import; names and configs of models are read without it.
    if name not in __all__:
        raise AttributeError(f"module 'ntrm.models' has no attribute {name!r}")
    from ntrm.models import trm

    return getattr(trm, name)
