"""SegFormer (Xie et al., 2021) from transformers (extra ``mit``): as it is, and with the tissue relation module."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from torch import Tensor, nn

from ntrm.core.errors import UsageError, check_number, choices_error
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import DecoderBlock, conv_bn_relu, initialise, scaled, upsample
from ntrm.models.trm import RelationConfig, TissueRelation, class_probabilities
from ntrm.models.unet import WIDTHS, CoarseHead

HEADS = (1, 2, 5, 8)


class MiTShape(NamedTuple):
    """Dimensions of a Mix Transformer; a stage has heads × head channels."""

    depths: tuple[int, int, int, int]
    head: int
    decoder: int


MIT = {"b0": MiTShape((2, 2, 2, 2), head=32, decoder=256), "b2": MiTShape((3, 4, 6, 3), head=64, decoder=768)}


def make_segformer(size: str, classes: int, width: float = 1.0, drop_path: float = 0.1) -> nn.Module:
    """Untrained SegFormer of transformers' own: (B, 3, H, W) → an output whose ``logits`` are (B, K, H/4, W/4).

    ``drop_path`` is the fraction of residual branches that training leaves out at the deepest layer.
    """
    check_number("drop_path", drop_path, 0, 0.9)
    if size not in MIT:
        raise choices_error("unknown size of the Mix Transformer", size, MIT)
    shape = MIT[size]
    try:
        from transformers import PreTrainedModel, SegformerConfig, SegformerForSemanticSegmentation
    except (ImportError, RuntimeError) as error:  # RuntimeError: transformers found a broken companion library
        raise UsageError("the Mix Transformer needs transformers", got=error, hint='pip install "ntrm[mit]"') from error
    config: Any = SegformerConfig(
        depths=list(shape.depths),
        hidden_sizes=[heads * scaled(shape.head, width) for heads in HEADS],
        num_attention_heads=list(HEADS),
        decoder_hidden_size=scaled(shape.decoder, width),
        drop_path_rate=drop_path,
        num_labels=classes,
    )
    network: nn.Module = SegformerForSemanticSegmentation(config)
    # Hooks are installed now: left to the first forward, they take a lock that cannot be compiled.
    with suppress(ImportError):  # other releases have no such hooks
        from transformers.utils.output_capturing import maybe_install_capturing_hooks

        for module in network.modules():
            if isinstance(module, PreTrainedModel):
                maybe_install_capturing_hooks(module)
    return network


class SegFormer(SegmentationModel):
    """``mit-b0`` and ``mit-b2``: SegFormer with its logits brought to input size."""

    def __init__(self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1) -> None:
        super().__init__()
        self.body = make_segformer(size, classes, width, drop_path)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Transformer, decoder, classes; neither a coarse prediction nor a graph."""
        return Segmentation(upsample(self.body(x).logits, 4))


class MiTTRM(SegmentationModel):
    """``mit-trm``: the relation works on the 1/8 grid as in NTRM, between the fused features and a decoder block."""

    def __init__(
        self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1, **variant: Any
    ) -> None:
        super().__init__()
        fused, inner, outputs = (scaled(channels, width) for channels in (MIT[size].decoder, WIDTHS[1], 96))
        self.body = make_segformer(size, classes, width, drop_path)
        # Without its classifier the decoder gives the features that all four stages were fused into.
        self.body.set_submodule("decode_head.classifier", nn.Identity())
        self.shrink = conv_bn_relu(fused, inner, stride=2)
        self.coarse = CoarseHead(inner, classes, width, steps=0)
        self.relation = TissueRelation(inner, classes, RelationConfig(**variant))
        self.decoder = DecoderBlock(inner, fused, outputs)
        self.classify = nn.Conv2d(outputs, classes, kernel_size=1)
        for module in (self.shrink, self.decoder, self.classify):
            initialise(module)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Fused features, coarse prediction, relation of tissues, decoder: one stage a line."""
        fused = self.body(x).logits  # (B, 256, H/4, W/4)
        features = self.shrink(fused)  # (B, 128, H/8, W/8)
        phi = self.coarse(features)  # (B, K, H/8, W/8)
        refined, tissues = self.relation(features, class_probabilities(phi))
        final = upsample(self.classify(self.decoder(refined, fused)), 4)  # (B, K, H, W)
        return Segmentation(final, upsample(phi, 8) if coarse else None, tissues if graph else None)
