"""SegFormer (Xie et al., 2021): the Mix Transformer with its all-MLP decoder, from transformers (extra ``mit``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ntrm.core.errors import UsageError, check_number, choices_error
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import scaled, upsample

HEADS = (1, 2, 5, 8)


@dataclass(frozen=True)
class MiTShape:
    """What tells one Mix Transformer from another; a stage has heads × head channels."""

    depths: tuple[int, int, int, int]
    head: int
    decoder: int


MIT = {
    "b0": MiTShape((2, 2, 2, 2), head=32, decoder=256),
    "b2": MiTShape((3, 4, 6, 3), head=64, decoder=768),
}


def make_segformer(size: str, classes: int, width: float = 1.0, drop_path: float = 0.1) -> nn.Module:
    """Untrained SegFormer of transformers' own: (B, 3, H, W) → an output whose ``logits`` are (B, K, H/4, W/4).

    ``drop_path`` is the share of residual branches that training leaves out at the deepest layer.
    """
    check_number("drop_path", drop_path, 0, 0.9)
    if size not in MIT:
        raise choices_error("unknown size of the Mix Transformer", size, MIT)
    shape = MIT[size]
    make_config, make_network = _library()
    config = make_config(
        depths=list(shape.depths),
        hidden_sizes=[heads * scaled(shape.head, width) for heads in HEADS],
        num_attention_heads=list(HEADS),
        decoder_hidden_size=scaled(shape.decoder, width),
        drop_path_rate=drop_path,
        num_labels=classes,
    )
    network: nn.Module = make_network(config)
    _settle(network)
    return network


def _settle(network: nn.Module) -> None:
    """Let transformers install its hooks now: left to the first forward, it takes a lock that cannot be compiled."""
    try:
        from transformers import PreTrainedModel
        from transformers.utils.output_capturing import maybe_install_capturing_hooks
    except ImportError:  # other releases have no such hooks
        return
    for part in network.modules():
        if isinstance(part, PreTrainedModel):
            maybe_install_capturing_hooks(part)


def _library() -> tuple[Any, Any]:
    """SegFormer's config and network as transformers has them."""
    try:
        from transformers import SegformerConfig, SegformerForSemanticSegmentation
    except (ImportError, RuntimeError) as error:  # RuntimeError: transformers found a broken companion library
        raise UsageError("the Mix Transformer needs transformers", got=error, hint='pip install "ntrm[mit]"') from error
    return SegformerConfig, SegformerForSemanticSegmentation


class SegFormer(SegmentationModel):
    """``mit-b0`` and ``mit-b2``: SegFormer with its logits brought to input size."""

    def __init__(self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1) -> None:
        super().__init__()
        self.body = make_segformer(size, classes, width, drop_path)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Transformer, decoder, classes; there is neither a coarse prediction nor a graph."""
        return Segmentation(upsample(self.body(x).logits, 4))
