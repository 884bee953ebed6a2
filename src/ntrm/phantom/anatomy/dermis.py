"""What becomes of the dermis (solar elastosis, oedema, scars) and what runs through it (vessels, nerves)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ntrm.phantom.anatomy.bodies import Blob, Structure
from ntrm.phantom.anatomy.frame import INF, PAP, RET, Axis, Body, Curve, Skin
from ntrm.phantom.anatomy.layers import Span, Strata, between, scatter, spread, stretches, waves
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.noise import generator
from ntrm.phantom.tissues import KINDS


@dataclass(frozen=True)
class DermisParameters:
    """How often the dermis is changed, and what lies in it; lengths in µm."""

    elastosis: float = 0.4  # Fraction of sections with solar elastosis: skin that grows these cancers has seen the sun
    elastosis_depth: Span = (100.0, 500.0)
    elastosis_fraction: Span = (0.3, 1.0)
    spared: float = 25.0  # Elastosis leaves this much below the epidermis
    oedema: float = 0.2
    oedema_fraction: Span = (0.2, 0.8)
    scar: float = 0.12
    """Fraction of sections with a scar: dense parallel collagen up to a flat epidermis, without adnexa."""
    scar_half_width: Span = (350.0, 1300.0)
    scar_depth: Span = (250.0, 1000.0)
    superficial_vessels_per_mm: float = 2.0
    superficial_radius: Span = (7.0, 20.0)
    superficial_depth: Span = (70.0, 420.0)
    deep_vessels_per_mm2: float = 0.7
    deep_radius: Span = (14.0, 60.0)
    lumen: Span = (0.5, 0.85)  # Radius of the lumen over that of the vessel
    filled: float = 0.55  # Fraction of vessels with red cells in them
    nerves_per_mm2: float = 0.12
    nerve_radius: Span = (18.0, 60.0)


@dataclass(frozen=True)
class Scar:
    """One scar, from the surface down."""

    u_um: float
    half_width_um: float
    depth_um: float

    @property
    def body(self) -> Blob:
        """The half of an ellipse below the surface."""
        radius, flatness = (self.half_width_um * self.depth_um) ** 0.5, self.half_width_um / self.depth_um
        return Blob(self.u_um, 0.0, radius, flatness, roughness=0.08)

    def holds(self, body: Body) -> bool:
        """Whether a body would lie in the scar."""
        across = max(abs(body.u_um - self.u_um) - body.reach_um, 0.0) / self.half_width_um
        return across**2 + (max(body.v_um - body.reach_um, 0.0) / self.depth_um) ** 2 < 1.0


@dataclass(frozen=True)
class Dermis:
    """The changes of one section."""

    elastosis: Curve  # How deep below the epidermis it reaches; 0 where there is none
    oedema: Curve  # 1 where the papillary dermis is swollen, 0 elsewhere
    scars: tuple[Scar, ...]
    spared_um: float

    def paint(self, skin: Skin, strata: Strata) -> None:
        """Onto papillary and reticular dermis."""
        if self.elastosis.any():
            depth = skin.v - skin.along_bent(np.maximum(strata.epidermis, strata.mass)) + np.float32(0.8) * skin.sway
            solar = (depth > np.float32(self.spared_um)) & (depth < skin.along(self.elastosis))
            skin.kinds[solar & ((skin.mask == PAP) | (skin.mask == RET))] = KINDS["elastosis"]
        if self.oedema.any():
            skin.kinds[(skin.mask == PAP) & (skin.along_bent(self.oedema) > 0.5)] = KINDS["oedema"]
        Structure("scars", [scar.body for scar in self.scars], RET, over=(PAP, RET), fine="scar").paint(skin)


def draw_dermis(seed: int, specimen: Specimen, strata: Strata, kind: DermisParameters) -> Dermis:
    """The changes of a section; scars spare tumours of the epidermis."""
    rng, axis = generator(seed, "dermis"), specimen.axis
    wave = waves(seed, "dermis", axis)
    elastosis = np.zeros_like(axis.u)
    if rng.random() < kind.elastosis:
        sunny = stretches(wave("elastosis", 3500.0), between(rng, kind.elastosis_fraction), slope=1.5)
        elastosis = spread(rng, kind.elastosis_depth) * sunny * np.exp(0.3 * wave("elastosis depth", 900.0))
    oedema = np.zeros_like(axis.u)
    if rng.random() < kind.oedema:
        oedema = stretches(wave("oedema", 1800.0), between(rng, kind.oedema_fraction))
    scars: tuple[Scar, ...] = ()
    if rng.random() < kind.scar:
        width = min(spread(rng, kind.scar_half_width), 0.5 * specimen.half_um)
        scar = Scar(specimen.half_um * between(rng, (-0.6, 0.6)), width, spread(rng, kind.scar_depth))
        under = np.abs(axis.u - scar.u_um) < scar.half_width_um
        scars = () if ((strata.in_situ > 0) | (strata.mass > 0))[under].any() else (scar,)
    return Dermis(
        elastosis=elastosis.astype(np.float32), oedema=oedema.astype(np.float32), scars=scars, spared_um=kind.spared
    )


def flatten(strata: Strata, axis: Axis, scars: tuple[Scar, ...]) -> Strata:
    """Over a scar the epidermis has lost its ridges."""
    epidermis = strata.epidermis
    for scar in scars:
        # Over 120 µm it thins towards 32 µm.
        over = np.clip((scar.half_width_um - np.abs(axis.u - scar.u_um)) / 120.0, 0.0, 1.0)
        flat = np.minimum(epidermis, np.float32(32.0))
        epidermis = np.asarray(epidermis + over * (flat - epidermis), dtype=np.float32)
    return replace(strata, epidermis=epidermis)


def draw_vessels(seed: int, specimen: Specimen, kind: DermisParameters) -> tuple[Structure, ...]:
    """Vessels of the superficial plexus and deep ones, some full of red cells; nerves."""
    rng = generator(seed, "vessels")
    length_mm, depth = 2e-3 * specimen.half_um, specimen.depth_um
    area_mm2, dermis = 1e-3 * length_mm * depth, (RET, PAP, INF)
    deep = (min(kind.superficial_depth[1], 0.5 * depth), 0.95 * depth)

    def vessel(radius: Span, at: Span) -> Blob:
        """Cut across or aslant."""
        radius_um, u_um, v_um = spread(rng, radius), specimen.half_um * between(rng, (-0.97, 0.97)), between(rng, at)
        return Blob(u_um, v_um, radius_um, spread(rng, (1.0, 4.0)), between(rng, (-60.0, 60.0)), roughness=0.1)

    superficial = length_mm * kind.superficial_vessels_per_mm
    small = scatter(rng, superficial, lambda: vessel(kind.superficial_radius, kind.superficial_depth))
    large = scatter(rng, area_mm2 * kind.deep_vessels_per_mm2, lambda: vessel(kind.deep_radius, deep))
    walls = [*small, *large]
    lumina = [replace(wall, radius_um=wall.radius_um * between(rng, kind.lumen)) for wall in walls]
    filled = [rng.random() < kind.filled for _ in walls]
    nerves = scatter(rng, area_mm2 * kind.nerves_per_mm2, lambda: vessel(kind.nerve_radius, deep))
    return (
        Structure("vessel walls", walls, None, dermis, "vessel wall"),
        Structure("lumina", [one for one, full in zip(lumina, filled, strict=True) if not full], None, dermis, "lumen"),
        Structure("blood", [one for one, full in zip(lumina, filled, strict=True) if full], None, dermis, "red cells"),
        Structure("nerves", nerves, RET, (RET,), "nerve"),
    )
