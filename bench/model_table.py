"""Parameters and floating-point operations of every architecture, as docs/models.md shows them.

    python bench/model_table.py

Nothing is computed: the networks are made of tensors that have shapes but no values, so the table takes seconds.
One multiplication and one addition are two operations. Convolutions and products of matrices are counted; thresholds,
max-pools, norms and products with a vector are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ntrm.models.registry import ARCHITECTURES, create

SIDE = 256


@dataclass(frozen=True)
class Cost:
    parameters: int
    operations: int  # Floating-point operations of one forward pass on one window

    def row(self, name: str) -> str:
        return f"| `{name}` | {self.parameters / 1e6:.2f} | {self.operations / 1e9:.2f} |"


def cost(name: str, classes: int = 12, **options: object) -> Cost:
    """Cost of an architecture with the default options or with those given."""
    with FakeTensorMode(), torch.no_grad():
        network = create(name, classes, **options).eval()
        # The counter does not know the fused attention of CPUs; written out, its products are counted.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            network(torch.empty(1, 3, SIDE, SIDE))
    return Cost(sum(p.numel() for p in network.parameters()), counter.get_total_flops())


def table() -> str:
    head = ["| architecture | parameters (million) | GFLOPs |", "|---|---|---|"]
    return "\n".join(head + [cost(name).row(name) for name in ARCHITECTURES])


if __name__ == "__main__":
    print(table())
