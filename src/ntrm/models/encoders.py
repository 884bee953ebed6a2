"""Encoders by name: our ResNets, or any pyramid of timm's behind the extra ``encoders``."""

from __future__ import annotations

import re
from typing import Protocol

from torch import Tensor, nn

from ntrm.errors import UsageError
from ntrm.models.encoder import ResNetEncoder, Stages

STRIDES = [2, 4, 8, 16, 32]


class Encoder(Protocol):
    """Features at five scales and how many channels each has."""

    channels: tuple[int, ...]

    def __call__(self, x: Tensor) -> Stages:
        """(B, 3, H, W) → E1 … E5."""
        ...


def make_encoder(name: str, width: float = 1.0) -> ResNetEncoder | TimmEncoder:
    """Encoder by name: ``resnet18``, ``resnet34``, ``resnet50`` or ``timm:<name>``."""
    if not isinstance(name, str):
        raise UsageError(
            "an encoder has a name", got=repr(name), expected="resnet18, resnet34, resnet50 or timm:<name>"
        )
    if name.startswith("timm:"):
        if width != 1.0:
            raise UsageError("timm encoders come in their own width", got=width, expected="width 1")
        return TimmEncoder(name.removeprefix("timm:"))
    return ResNetEncoder(name, width)


class TimmEncoder(nn.Module):
    """A feature pyramid of timm's, without pretrained weights: those are loaded like all others."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)?", name):
            # timm fetches names such as hf-hub:owner/model; a config file must not be able to ask for that.
            raise UsageError("unknown timm encoder", got=repr(name), expected="the plain name of a timm model")
        try:
            import timm
        except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision built for another torch
            raise UsageError(
                f"the encoder timm:{name} needs timm", got=error, mend='pip install "ntrm[encoders]"'
            ) from error
        try:
            self.body = timm.create_model(name, pretrained=False, features_only=True)
        except RuntimeError as error:
            raise UsageError("timm cannot make this encoder", got=error, mend="see timm.list_models()") from error
        strides = list(self.body.feature_info.reduction())
        if strides != STRIDES:
            raise UsageError(f"timm:{name} is no five-level pyramid", got=strides, expected=STRIDES)
        self.channels = tuple(self.body.feature_info.channels())

    def forward(self, x: Tensor) -> Stages:
        """(B, 3, H, W) → E1 … E5."""
        e1, e2, e3, e4, e5 = self.body(x)
        return e1, e2, e3, e4, e5
