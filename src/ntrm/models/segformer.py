"""SegFormer (Xie et al., 2021) from transformers (extra ``mit``): as it is, and with the tissue relation module.

As in ``unet``, the network around the relation is made in two halves, so that the relation can be initialised between
or after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ntrm.core.errors import UsageError, check_number, choices_error
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import DecoderBlock, initialise, scaled, upsample
from ntrm.models.trm import RelationConfig, TissueRelation, class_probabilities
from ntrm.models.unet import CoarseHead, related_channels

HEADS = (1, 2, 5, 8)


@dataclass(frozen=True)
class MiTShape:
    """Dimensions of a Mix Transformer; a stage has heads × head channels."""

    depths: tuple[int, int, int, int]
    head: int
    decoder: int


MIT = {
    "b0": MiTShape((2, 2, 2, 2), head=32, decoder=256),
    "b2": MiTShape((3, 4, 6, 3), head=64, decoder=768),
}


def make_segformer(size: str, classes: int, width: float = 1.0, drop_path: float = 0.1) -> nn.Module:
    """Untrained SegFormer of transformers' own: (B, 3, H, W) → an output whose ``logits`` are (B, K, H/4, W/4).

    ``drop_path`` is the fraction of residual branches that training leaves out at the deepest layer.
    """
    check_number("drop_path", drop_path, 0, 0.9)
    if size not in MIT:
        raise choices_error("unknown size of the Mix Transformer", size, MIT)
    shape = MIT[size]
    try:
        from transformers import SegformerConfig, SegformerForSemanticSegmentation
    except (ImportError, RuntimeError) as error:  # RuntimeError: transformers found a broken companion library
        raise UsageError("the Mix Transformer needs transformers", got=error, hint='pip install "ntrm[mit]"') from error
    make_config: Any = SegformerConfig  # the library is typed in parts only
    make_network: Any = SegformerForSemanticSegmentation
    config = make_config(
        depths=list(shape.depths),
        hidden_sizes=[heads * scaled(shape.head, width) for heads in HEADS],
        num_attention_heads=list(HEADS),
        decoder_hidden_size=scaled(shape.decoder, width),
        drop_path_rate=drop_path,
        num_labels=classes,
    )
    network: nn.Module = make_network(config)
    _install_hooks(network)
    return network


def _install_hooks(network: nn.Module) -> None:
    """Let transformers install its hooks now: left to the first forward, it takes a lock that cannot be compiled."""
    try:
        from transformers import PreTrainedModel
        from transformers.utils.output_capturing import maybe_install_capturing_hooks
    except ImportError:  # other releases have no such hooks
        return
    for module in network.modules():
        if isinstance(module, PreTrainedModel):
            maybe_install_capturing_hooks(module)


class SegFormer(SegmentationModel):
    """``mit-b0`` and ``mit-b2``: SegFormer with its logits brought to input size."""

    def __init__(self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1) -> None:
        super().__init__()
        self.body = make_segformer(size, classes, width, drop_path)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Transformer, decoder, classes; neither a coarse prediction nor a graph."""
        return Segmentation(upsample(self.body(x).logits, 4))


def fused_half(classes: int, size: str, width: float, drop_path: float) -> tuple[nn.Module, nn.Sequential, CoarseHead]:
    """Up to the 1/8 grid: transformer, convolution to that grid and coarse head.

    The ``logits`` of the transformer's output are the fused features (B, 256, H/4, W/4), which the convolution brings
    to (B, 128, H/8, W/8). It is initialised in ``spread_half``.
    """
    body = make_segformer(size, classes, width, drop_path)
    # Without its classifier the decoder gives the features that all four stages were fused into.
    body.set_submodule("decode_head.classifier", nn.Identity())
    inner = related_channels(width)
    shrink = nn.Sequential(
        nn.Conv2d(scaled(MIT[size].decoder, width), inner, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(inner),
        nn.ReLU(inplace=True),
    )
    return body, shrink, CoarseHead(inner, classes, width, steps=0)


def spread_half(classes: int, size: str, width: float, shrink: nn.Sequential) -> tuple[DecoderBlock, nn.Conv2d]:
    """Back to the grid of the fused features: decoder block and classifier; ``shrink`` is initialised with them."""
    outputs = scaled(96, width)
    decoder = DecoderBlock(related_channels(width), scaled(MIT[size].decoder, width), outputs)
    classify = nn.Conv2d(outputs, classes, kernel_size=1)
    for module in (shrink, decoder, classify):
        initialise(module)
    return decoder, classify


class MiTTRM(SegmentationModel):
    """``mit-trm``: the relation works on the 1/8 grid as in NTRM, between the fused features and a decoder block."""

    def __init__(
        self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1, **variant: Any
    ) -> None:
        super().__init__()
        self.body, self.shrink, self.coarse = fused_half(classes, size, width, drop_path)
        self.relation = TissueRelation(related_channels(width), classes, RelationConfig(**variant))
        self.decoder, self.classify = spread_half(classes, size, width, self.shrink)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Fused features, coarse prediction, relation of tissues, decoder: one stage a line."""
        fused = self.body(x).logits  # (B, 256, H/4, W/4)
        features = self.shrink(fused)  # (B, 128, H/8, W/8)
        phi = self.coarse(features)  # (B, K, H/8, W/8)
        refined, tissues = self.relation(features, class_probabilities(phi))
        final = upsample(self.classify(self.decoder(refined, fused)), 4)  # (B, K, H, W)
        return Segmentation(final, upsample(phi, 8) if coarse else None, tissues if graph else None)
