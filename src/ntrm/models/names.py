"""Names of architectures, and what they mean for a user and in a saved file. Needs no torch."""

from __future__ import annotations

from ntrm.core.errors import UsageError

NETWORKS = frozenset(
    {
        "ntrm-paper", "ntrm-control", "ntrm-released", "unet-resnet18", "unet-vgg16", "attention-unet",
        "deeplabv3plus", "mit-b0", "mit-b2", "mit-trm",
    }
)  # fmt: skip
"""What the registry can build, for code that must not import torch."""

DEFAULT = "ntrm"
"""The default of this version, whichever network that is."""

DEFAULT_NETWORK = "ntrm-paper"
"""What ``ntrm`` means now. Networks are saved under this name, so that another default leaves them what they are."""

MOVED = ("ntrm-section", "mit-section")
"""Networks of the relation study, which left the package."""

# Until the default was a name of its own, `ntrm` was a second name of the paper's network, and models, runs and
# evaluations were saved under it. None has been since, while the default was the control and after: a saved `ntrm` will
# always be the paper's network, whatever the default is.
_SAVED_AS_DEFAULT = "ntrm-paper"


def network_named(name: str) -> str:
    """The network that a name given by a user means.

    >>> network_named("ntrm"), network_named("ntrm-control")
    ('ntrm-paper', 'ntrm-control')
    """
    return DEFAULT_NETWORK if name == DEFAULT else name


def network_saved_as(name: str) -> str:
    """The network that a name read from a file means: of a model, a run or an evaluation.

    >>> network_saved_as("ntrm"), network_saved_as("ntrm-control")
    ('ntrm-paper', 'ntrm-control')
    """
    return _SAVED_AS_DEFAULT if name == DEFAULT else name


def refuse_moved(name: str) -> None:
    """Say where a network went that the package had once; other names pass."""
    if name in MOVED:
        raise UsageError(
            f"{name} is a research network, which is no longer part of the package",
            got=name,
            expected=f"one of {', '.join(sorted(NETWORKS))}",
            hint="the history of the source repository has it: commit 7a2f76af, research/README.md",
        )
