"""What was done to a slide's stains before the network saw it, as ``summary.json`` says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StainNorm:
    """How the network saw a slide whose stains were to be brought to those of the training sections."""

    method: str
    matrix: tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]] | None
    """By which the optical densities of red, green and blue were multiplied; None: the slide was left as it is."""
    reason: str = ""
    """Why it was left so."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """In words, where nothing was done."""
        return () if self.matrix is not None else (f"stains are as they were: {self.reason}",)
