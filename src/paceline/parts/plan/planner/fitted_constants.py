"""Constants that were fitted to published measurements, with the rows they were fitted on.

`bench/accuracy.py` fits them again on all rows but one source's or one workload's, so that what docs/accuracy.md says of them is
held out, and says so when what is here is not what the rows give.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.parts.plan.planner.links import LinkClass

Band = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAnchor:
    """Step time from one measured step: T = T_anchor * (1 + taxes) + shares of the exchange that is not hidden.

    A band has the 5th and 92nd hundredth of (measured - predicted) / (width + predicted growth), both over the anchor.
    """

    inside_tax: Mapping[LinkClass, float]
    """Fraction of the step for each doubling of the devices of a host, by kind of link."""
    inside_exposed: float
    """Fraction of the plain exchange inside a host by which the step grows."""
    inside_exchange: Mapping[LinkClass, float]
    """Exchange over step if the gradient is not known (median of the rows), by kind of link."""
    inside_band: Mapping[LinkClass, Band]
    """Band inside a host, by kind of link."""
    between_tax: float
    """Fraction of the step for each doubling of the hosts."""
    between_exposed: float
    """Fraction of the plain exchange between hosts by which the step grows."""
    between_exchange: float
    """Exchange over step between hosts if the gradient is not known."""
    between_band: Band
    """Band between hosts."""
    from_device_band: Band
    """Band between hosts if the anchor has another number of devices per host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoAnchors:
    """Step time from two measured sizes: T(k) = T(k2) * (1 + growth * log2(k / k2)) + kept * B * (h(k) - h(k2)), h(k) = 2 (k - 1) / k.

    B is the slope between the two; a slope below zero counts as zero.
    """

    kept: float
    """Fraction of the slope that continues."""
    growth: float
    """Fraction of the step for each doubling."""
    band: Band
    """As in OneAnchor, of (measured - predicted) over T(k2) * (width + spread * |T(k2) / T(k1) - 1|) * sqrt(log2(k
    / k2))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """All constants. They are a value, so that the benchmark can pass constants that were fitted on a part of the rows."""

    one: OneAnchor
    """From one measured step."""
    hosts: TwoAnchors
    """From two measured host counts."""
    devices: TwoAnchors
    """From two measured device counts of a host."""


INSIDE_WIDTH = 0.12
BETWEEN_WIDTH = 0.15
FROM_DEVICE_WIDTH = 0.30
TWO_WIDTH = 0.03
TWO_SPREAD = 0.25

FITTED = Fitted(
    one=OneAnchor(
        inside_tax={LinkClass.NVSWITCH: 0.0108, LinkClass.CUBE_MESH: 0.0243, LinkClass.PCIE: 0.0222},
        inside_exposed=1.23,
        inside_exchange={LinkClass.NVSWITCH: 0.0049, LinkClass.CUBE_MESH: 0.0074, LinkClass.PCIE: 0.0093},
        inside_band={
            LinkClass.NVSWITCH: (-0.34, 2.14),
            LinkClass.CUBE_MESH: (-0.37, 1.26),
            LinkClass.PCIE: (-0.37, 1.29),
        },
        between_tax=0.0116,
        between_exposed=0.6,
        between_exchange=0.0337,
        between_band=(-0.61, 1.81),
        from_device_band=(-0.33, 3.24),
    ),
    hosts=TwoAnchors(kept=0.2, growth=0.015, band=(-0.58, 1.91)),
    devices=TwoAnchors(kept=0.75, growth=0.005, band=(-1.02, 6.33)),
)
