"""What the name of an architecture means when a network is made, and when one is read. Needs no torch."""

from __future__ import annotations

NETWORKS = frozenset(
    {
        "ntrm-paper", "ntrm-control", "ntrm-section", "unet-resnet18", "unet-vgg16", "attention-unet", "deeplabv3plus",
        "mit-b0", "mit-b2", "mit-trm", "mit-section",
    }
)  # fmt: skip
"""What the registry can build, for those who must not load torch to ask it."""

DEFAULT = "ntrm"
"""The default of this version, whichever network that is."""

DEFAULT_NETWORK = "ntrm-control"
"""What ``ntrm`` means now. Networks are saved under this name, so that another default leaves them what they are."""

# Until the default was a name of its own, `ntrm` was a second name of the paper's network, and models, runs and
# evaluations were saved under it. None has been since: a saved `ntrm` will always be the paper's network.
_SAVED_AS_DEFAULT = "ntrm-paper"


def network_named(name: str) -> str:
    """The network that a name given by a user means.

    >>> network_named("ntrm"), network_named("ntrm-paper")
    ('ntrm-control', 'ntrm-paper')
    """
    return DEFAULT_NETWORK if name == DEFAULT else name


def network_saved_as(name: str) -> str:
    """The network that a name read from a file means: of a model, a run or an evaluation.

    >>> network_saved_as("ntrm"), network_saved_as("ntrm-control")
    ('ntrm-paper', 'ntrm-control')
    """
    return _SAVED_AS_DEFAULT if name == DEFAULT else name
