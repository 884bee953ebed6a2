"""A plan on paper for very many slides in object storage: hours, cost, what fails, and what is the limit.

    python bench/plan_slides.py [--slides 100000] [--machines 10] [--seconds 2.74] [--workers 8] [--gigabytes 1.0]
        [--megabits 10000] [--price 1.0] [--unreadable 0.01] [--interruptions 0.05]

A formula, not a measurement. ``--seconds`` is that of one slide in one worker, with ``--workers`` of them on a machine
(docs/results/slides.md has measured ones; better, segment ten slides of your own). Slides are fetched and results sent
beside the network's work, so that the slower of the two decides. Prices are yours to fill in.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

SENT_GB = 0.01
"""Results of a slide, assumed: those of three phantom sections took 0.6 to 2 MB, a larger slide has more."""


@dataclass(frozen=True)
class Plan:
    slides: int = 100_000
    machines: int = 10
    seconds: float = 2.74
    """Of one slide in one worker."""
    workers: int = 8
    """On a machine."""
    gigabytes: float = 1.0
    """Of a slide's file: all of it is fetched, however few of its pixels are read."""
    megabits: float = 10_000.0
    """A second, between the storage and a machine."""
    price: float = 1.0
    """Of a machine's hour."""
    unreadable: float = 0.01
    """Fraction of slides that fail each time."""
    interruptions: float = 0.05
    """Of a machine in an hour: preempted, lost, restarted."""

    @property
    def processing_hours(self) -> float:
        return self.slides * self.seconds / self.workers / self.machines / 3600

    @property
    def transfer_hours(self) -> float:
        return self.slides * (self.gigabytes + SENT_GB) * 8000 / self.megabits / self.machines / 3600

    @property
    def redone_slides(self) -> float:
        """By interruption: another machine begins each worker's slide anew, on average from its middle."""
        longest = max(self.processing_hours, self.transfer_hours)
        return self.interruptions * self.machines * longest * self.workers / 2

    @property
    def hours(self) -> float:
        return max(self.processing_hours, self.transfer_hours) * (1 + self.redone_slides / self.slides)

    @property
    def cost(self) -> float:
        return self.hours * self.machines * self.price

    @property
    def limit(self) -> str:
        return "transfers" if self.transfer_hours > self.processing_hours else "processing"


def row(name: str, plan: Plan) -> str:
    hours = f"{plan.processing_hours:.1f} | {plan.transfer_hours:.1f} | {plan.hours:.1f}"
    failed = f"{plan.slides * plan.unreadable:,.0f} | {plan.redone_slides:.0f}"
    return f"| {name} | {hours} | {plan.hours * plan.machines:,.0f} | {plan.cost:,.0f} | {failed} | {plan.limit} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Plan):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    plan = Plan(**vars(parser.parse_args()))
    print("| | processing, h | transfers, h | all, h | machine hours | cost | failed | begun anew | limit |")
    print("|---|---|---|---|---|---|---|---|---|")
    print(row("plan", plan))


if __name__ == "__main__":
    main()
