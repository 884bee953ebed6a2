"""Variants of the section network that tests go through, and what they need."""

import torch

from ntrm.models.registry import create

VARIANTS = {
    "default": {},
    "window": {"scope": "window"},
    "d2": {"source": "d2"},
    "both": {"source": "both"},
    "complete": {"graph": "complete"},
    "no graph": {"graph": "none"},
    "prior": {"prior": True},
    "position": {"position": True},
    "complete with all": {"graph": "complete", "prior": True, "position": True},
    "paste": {"readout": "paste"},
    "shift": {"shift": True, "position": True},
    "amounts alone": {"looks": False, "shift": True, "position": True},
    "amounts in rounds": {"looks": False, "rounds": 2, "graph": "none"},
    "forgetful": {"dropout": 0.5, "shift": True},
    "often alone": {"alone": 0.5, "shift": True},
    "straight-through": {"masks": "straight-through", "temperature": 0.5},
    "detached": {"masks": "detached", "source": "d2"},
    "two rounds": {"rounds": 2},
    "three rounds": {"rounds": 3, "source": "both", "readout": "paste", "position": True},
    "regions": {"regions": 4, "source": "both", "graph": "complete"},
    "regions and cancers": {"regions": 2, "cancers": "1,3"},
    "vector": {"nodes": "vector", "graph": "none"},
    "vector of both": {"nodes": "vector", "graph": "none", "source": "both"},
    "vector that shifts": {"nodes": "vector", "graph": "none", "shift": True},
    "tokens": {"nodes": "tokens", "graph": "none"},
    "tokens that speak": {"nodes": "tokens", "graph": "complete", "source": "both"},
}

CLASSES = 5


def build(name, *, opened=True, **options):
    """A small network; ``opened`` lets the module act, which starts closed."""
    network = create("ntrm-section", CLASSES, width=0.125, dim=8, heads=2, **VARIANTS[name], **options)
    return open_up(network) if opened else network


def open_up(network):
    """Give weights to what starts at zero."""
    relation = network.relation
    torch.nn.init.normal_(relation.readout.out.weight, std=0.5)
    torch.nn.init.normal_(relation.readout.out.bias, std=0.5)
    if hasattr(relation, "shift"):
        torch.nn.init.normal_(relation.shift.weight, std=0.5)
    if hasattr(relation, "revise"):
        torch.nn.init.normal_(relation.revise.weight, std=0.5)
    for key, value in relation.named_parameters():
        if key.endswith("prior"):
            torch.nn.init.normal_(value)
    return network


def patchwork(network):
    """Let the coarse prediction name four tissues, each surest in a quarter of the window, and leave the last out."""

    def over(_module, _inputs, out):
        quiet = out / (1 + out.abs())
        half, middle = out.shape[2] // 2, out.shape[3] // 2
        quiet[:, 0, :half, :middle] += 3
        quiet[:, 1, :half, middle:] += 3
        quiet[:, 2, half:, :middle] += 3
        quiet[:, 3, half:, middle:] += 3
        quiet[:, -1] -= 20
        return quiet

    network.coarse.register_forward_hook(over)
    return network
