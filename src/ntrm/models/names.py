"""Names of architectures, and what they mean for a user and in a saved file. Needs no torch."""

from __future__ import annotations

NETWORKS = frozenset(
    {
        "ntrm-paper", "ntrm-control", "ntrm-released", "unet-resnet18", "unet-vgg16", "attention-unet",
        "deeplabv3plus", "mit-b0", "mit-b2", "mit-trm",
    }
)  # fmt: skip
"""What the registry can build, for code that must not import torch."""

DEFAULT = "ntrm"  # The default of this version, whichever network that is

DEFAULT_NETWORK = "ntrm-paper"
"""What ``ntrm`` means now. Networks are saved under this name, so that another default leaves them what they are."""


def network_named(name: str) -> str:
    """The network that a name given by a user means.

    >>> network_named("ntrm"), network_named("ntrm-control")
    ('ntrm-paper', 'ntrm-control')
    """
    return DEFAULT_NETWORK if name == DEFAULT else name
