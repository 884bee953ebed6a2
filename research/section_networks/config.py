"""The variants of the section relation, by name; one factor a field."""

from __future__ import annotations

from dataclasses import dataclass

from ntrm.core.errors import UsageError, check_number, choices_error

CHOICES = {
    "scope": ("section", "window"),
    "nodes": ("tissue", "vector", "tokens"),
    "graph": ("contact", "complete", "none"),
    "readout": ("ask", "paste"),
    "source": ("e5", "d2", "both"),
    "masks": ("soft", "straight-through", "detached", "true", "random"),
}
SWITCHES = ("looks", "position", "shift")
MOST_DIM, MOST_LAYERS = 4096, 64
"""A config from outside must not be able to ask for all the memory there is."""


@dataclass(frozen=True)
class SectionConfig:
    """What a section relation is made of."""

    scope: str = "section"
    """``section``: nodes pool all windows of a section · ``window``: those of the window alone."""
    nodes: str = "tissue"
    """``tissue``: a node for each class, pooled under its soft mask · ``vector``: one mean of everything, no classes ·
    ``tokens``: as many learned queries as there are classes, which attend to the section, no classes. The last two are
    controls: they see as far, and know no tissues."""
    looks: bool = True
    """Whether nodes know what their tissue looks like here. Without, they know how much there is of it and what it
    touches, by which no section can be recognised and learned by heart."""
    dropout: float = 0.0
    """Share of the pooled features that a node forgets in each training step."""
    alone: float = 0.0
    """Share of the windows of a training step that do not hear of the rest of their section. What a section holds is
    soon known by heart in training; a network that can always ask for it learns less from the pixels themselves."""
    graph: str = "contact"
    """``contact``: attention among nodes, biased by which tissues touch · ``complete``: without that · ``none``."""
    position: bool = False
    """Whether edges know how often the one tissue lies within 2 and within 8 cells of the other, and nodes what
    surrounds them. Both stay the same however the section lies, and add up over windows."""
    readout: str = "ask"
    """``ask``: every pixel attends to the nodes · ``paste``: nodes go where their masks are, as in the paper."""
    shift: bool = False
    """Whether each node also shifts the logit of its tissue in the whole section: the most direct thing that a section
    can say about a pixel is how likely a tissue is in it at all."""
    source: str = "e5"
    """Which features are pooled; with ``e5`` the first pass needs no decoder."""
    masks: str = "soft"
    """``soft``: probabilities · ``straight-through``: the most probable class, with the gradient of probabilities ·
    ``detached``: probabilities without gradient · ``true`` (the network must be told) and ``random`` (blobs drawn anew
    each time): bounds for studies, not for use."""
    temperature: float = 1.0
    """Coarse logits are divided by this before they become masks."""
    dim: int = 128
    layers: int = 2
    heads: int = 4
    floor: float = 0.001
    """Share of the section below which a tissue counts as absent, and nothing attends to it."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise choices_error(f"unknown value of {name}", str(getattr(self, name)), choices)
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} is a switch", got=getattr(self, name), expected="true or false")
        check_number("dropout", self.dropout, 0, 0.9)
        check_number("alone", self.alone, 0, 1)
        check_number("temperature", self.temperature, 0.01, 100)
        check_number("dim", self.dim, 1, MOST_DIM, whole=True)
        check_number("layers", self.layers, 1, MOST_LAYERS, whole=True)
        check_number("heads", self.heads, 1, MOST_DIM, whole=True)
        check_number("floor", self.floor, 0, 0.003)
        if self.dim % self.heads:
            raise UsageError("heads share the width of a node", got=f"dim {self.dim}, heads {self.heads}")
        self._check_together()

    def _check_together(self) -> None:
        """Refuse names that mean nothing together: a study must not compare a network with itself."""
        other = self.nodes != "tissue"
        without = {
            "nodes that are no tissues touch nothing and have no masks": other
            and (self.graph == "contact" or self.readout == "paste" or self.position or not self.looks),
            "positions act in the graph": self.graph == "none" and self.position,
            "one vector has no graph": self.nodes == "vector" and self.graph != "none",
            "in one window every window is alone": self.scope == "window" and self.alone > 0,
            "without looks nothing is pooled, and nothing forgotten": not self.looks
            and (self.dropout > 0 or self.source != "e5"),
        }
        for reason, wrong in without.items():
            if wrong:
                raise UsageError("these options exclude each other", got=self, expected=reason)

    @property
    def maps(self) -> int:
        """How many K × K tables of pairs are summed: contact first, then one for each radius."""
        if self.nodes != "tissue" or self.graph == "none":
            return 0
        return 3 if self.position else 1
