"""Can what a click is worth be learned? The weights of ``ntrm.correction.spread``'s formula, by gradient.

    python research/correction_learning.py curves/v2 curves/v3 --out learned

Learned are the weights of the groups of features, the ridge, the least probability, the margin and its limit, the share
of walks in the affinity, and how far a walk passes a border: by how different the two sides look, and whether they have
one name. Three networks of messages: without edges (the matched control), with the walks as they are, with borders
that are passed as learned. Clicks are simulated on phantom sections in random stains (``learn-…``) and on A1-1, with
what was learned so far; the loss is 1 − soft mean IoU after 1 to 15 of them, over the error without a click. Shown is
how much of that error is gone after some clicks, on the sections for choosing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from numpy.typing import NDArray
from research.correction_curves import sections_of
from research.simulated_clicks import Section, next_click
from torch import Tensor, nn
from torch.nn import functional

from ntrm.core.io import write_json
from ntrm.core.labels import SKIN
from ntrm.correction.spread import PROBABILITIES, standardised

GROUPS = ("related", "last", "colour", PROBABILITIES, "shape", "depth")
KINDS = {"without edges": (False, False, 4), "walks": (True, False, 4), "learned borders": (True, True, 6)}
"""Whether there are edges, whether borders are learned, steps of a walk."""
CLICKS = (1, 2, 4, 8, 15)
ROUNDS, EPOCHS, BATCH, LEARNING_RATE = 4, 10, 4, 0.05
SHARPNESS = 2.0
"""Factor on logits in the loss: names are hard in the end."""
LEAST_ERROR = 0.1
"""Sections with a smaller error count no more than one with this."""


class Prepared:
    """A section as tensors."""

    def __init__(self, section: Section) -> None:
        graph = section.graph
        self.section, self.count = section, len(graph)
        self.features = [torch.from_numpy(standardised(graph, {name: 1.0})).float() for name in GROUPS]
        self.probabilities, self.tissue = torch.from_numpy(graph.probabilities), torch.from_numpy(graph.tissue)
        weight = np.where(graph.tissue == graph.schema.background_index, 0, graph.pixels)
        self.doubt = 1 - float(np.average(graph.probabilities.max(axis=1), weights=weight))
        edges = torch.from_numpy(graph.edges)
        self.one, self.other = torch.cat([edges, edges.flip(1)]).T
        self.ratio = torch.from_numpy(graph.ratios.T.reshape(-1)).float()
        self.same = (self.tissue[self.one] == self.tissue[self.other]).float()
        apart = [((values[self.one] - values[self.other]) ** 2).sum(dim=1) for values in self.features]
        self.apart = torch.stack(apart, dim=1)  # (2E, groups)
        self.pixels = torch.from_numpy(section.pixels).float()  # (N, T)
        self.right = torch.from_numpy(section.truth.right).float()  # (T, K)
        self.error = 1 - section.truth.mean_iou(section.confusion(graph.tissue))


class Carrying(nn.Module):
    """The formula of ``spread`` with weights that can be learned; all but the gates are kept as logarithms."""

    def __init__(self, edges: bool, borders: bool, steps: int) -> None:
        super().__init__()
        self.edges, self.borders, self.steps = edges, borders, steps
        self.looks = _logarithm([0.6, 0.6, 0.6, 0.6, 0.02, 0.02])
        self.margin, self.most_margin, self.least, self.ridge = map(_logarithm, (40.0, 6.0, 0.01, 0.3))
        self.share = nn.Parameter(torch.tensor(2.0))
        self.barrier = _logarithm([0.05] * len(GROUPS))
        self.gate = nn.Parameter(torch.tensor([2.0, 2.0]))
        """For borders within a name, and between two."""

    def affinity(self, section: Prepared, nodes: Tensor) -> Tensor:
        """(N, C)."""
        distance = torch.zeros(section.count, len(nodes))
        for weight, values in zip(self.looks.exp(), section.features, strict=True):
            square = (values**2).sum(dim=1)
            distance = distance + weight * (square[:, None] + square[nodes] - 2 * values @ values[nodes].T).clamp(min=0)
        clicked = functional.one_hot(nodes, section.count).T.bool()
        alike = torch.exp(-distance / 2)
        if self.edges:
            alike = 1 - (1 - alike) * (1 - self.share.sigmoid() * self.walks(section, clicked))
        return alike.masked_fill(clicked, 1.0)

    def walks(self, section: Prepared, clicked: Tensor) -> Tensor:
        """(N, C) chance to meet the clicked node."""
        chance = section.ratio
        if self.borders:
            within, between = self.gate.unbind()
            gate = torch.sigmoid(within * section.same + between * (1 - section.same))
            chance = chance * gate * torch.exp(-(section.apart @ self.barrier.exp()) / 2)
        met = clicked.float()
        for _ in range(self.steps):
            met = torch.zeros_like(met).index_add(0, section.one, chance[:, None] * met[section.other])
            met = met.masked_fill(clicked, 1.0)
        return met

    def forward(self, section: Prepared, clicks: Mapping[int, int]) -> Tensor:
        """(N, K) z'."""
        nodes = torch.tensor(sorted(clicks))
        given = torch.tensor([clicks[int(node)] for node in nodes])
        said = torch.log(torch.maximum(section.probabilities, self.least.exp()))
        top = said.max(dim=1).values
        said = said.scatter(1, section.tissue[:, None], top[:, None])
        margin = torch.minimum(self.margin.exp() * section.doubt, self.most_margin.exp())
        missing = top[nodes] - said[nodes, given] + margin
        wanted = functional.one_hot(given, said.shape[1]) * missing[:, None]
        affinity = self.affinity(section, nodes)
        among = affinity[nodes] + self.ridge.exp() * torch.eye(len(nodes))
        return said + affinity @ torch.linalg.solve(among, wanted)

    @torch.no_grad()
    def names(self, section: Prepared, clicks: Mapping[int, int]) -> NDArray[np.int64]:
        """(N,) classes after clicks."""
        leading = self(section, clicks)
        own = leading.gather(1, section.tissue[:, None])[:, 0]
        highest, best = leading.max(dim=1)
        # As in the product, a class that nobody gave must not lead.
        given = torch.isin(best, torch.tensor(list(clicks.values())))
        tissue = torch.where(given & (highest > own), best, section.tissue).numpy()
        tissue[list(clicks)] = list(clicks.values())
        return np.asarray(tissue)

    def loss(self, section: Prepared, clicks: Mapping[int, int]) -> Tensor:
        """1 − soft mean IoU, over the error without clicks."""
        chance = torch.softmax(SHARPNESS * self(section, clicks), dim=1) @ section.right.T  # (N, T)
        pixels = section.pixels
        both = (pixels * chance).sum(dim=0)
        either = pixels.sum(dim=0) + (pixels.sum(dim=1, keepdim=True) * chance).sum(dim=0) - both
        occurs = pixels.sum(dim=0) > 0
        return (1 - (both / either)[occurs].mean()) / max(section.error, LEAST_ERROR)


def _logarithm(values: float | list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values).log())


def clicked(carrying: Carrying, section: Prepared, order: str, seed: int) -> tuple[list[tuple[int, int]], list[float]]:
    """Simulated clicks, and the share of the error that is gone after some of them."""
    own, random = section.section, np.random.default_rng(seed)
    clicks, gone, tissue = dict[int, int](), [], own.graph.tissue
    for number in range(1, max(CLICKS) + 1):
        click = next_click(own, tissue, list(clicks), order, random)
        if click is not None:
            clicks[click[0]] = click[1]
            tissue = carrying.names(section, clicks)
        if number in CLICKS:
            gone.append(1 - (1 - own.truth.mean_iou(own.confusion(tissue))) / section.error)
    return list(clicks.items()), gone


def learn(carrying: Carrying, drawn: Sequence[Prepared], real: Sequence[Prepared]) -> None:
    """Rounds of simulated clicks and of steps on them."""
    optimiser, random = torch.optim.Adam(carrying.parameters()), np.random.default_rng(0)
    seen: list[tuple[Prepared, list[tuple[int, int]]]] = []
    for turn in range(ROUNDS):
        for number, section in enumerate(drawn):
            if number % 2 == turn % 2:
                seen.append((section, clicked(carrying, section, "largest" if number % 3 else "parts", turn)[0]))
        for section in real:
            for order, seed in (("largest", 0), ("parts", turn), ("parts", turn + 50)):
                seen.append((section, clicked(carrying, section, order, seed)[0]))
        for epoch in range(EPOCHS):
            rate = LEARNING_RATE * (1 - (turn * EPOCHS + epoch) / (ROUNDS * EPOCHS))
            optimiser.param_groups[0]["lr"] = rate
            order = random.permutation(len(seen))[:40]
            for start in range(0, len(order), BATCH):
                batch = [seen[at] for at in order[start : start + BATCH]]
                step(carrying, optimiser, batch, random.choice(CLICKS, len(batch)))


def step(
    carrying: Carrying,
    optimiser: torch.optim.Optimizer,
    batch: Sequence[tuple[Prepared, list[tuple[int, int]]]],
    counts: Iterable[int],
) -> None:
    """One step on the first clicks of some sections."""
    optimiser.zero_grad()
    for (section, clicks), count in zip(batch, counts, strict=True):
        if clicks:
            (carrying.loss(section, dict(clicks[:count])) / len(batch)).backward()
    nn.utils.clip_grad_norm_(carrying.parameters(), 1.0)
    optimiser.step()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, nargs="+", help="folders with the graphs of a model each")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sets = {
        (folder.name, which): [Prepared(section) for section in sections_of(folder, which, SKIN).values()]
        for folder in asked.kept
        for which in ("learn", "choose", "skin-pas-A1-1")
    }
    for name, kind in KINDS.items():
        carrying = Carrying(*kind)
        drawn, real = (
            [each for (_, which), some in sets.items() if which == wanted for each in some]
            for wanted in ("learn", "skin-pas-A1-1")
        )
        learn(carrying, drawn, real)
        found = {key: np.exp(value.detach().numpy()).tolist() for key, value in carrying.named_parameters()}
        print(name, found, flush=True)
        for (model, which), some in sets.items():
            gone = np.mean([clicked(carrying, each, "largest", 0)[1] for each in some], axis=0).tolist()
            found[f"{model} {which}"] = gone
            print(f"| {name} | {model} | {which} | {' | '.join(f'{value:.2f}' for value in gone)} |", flush=True)
        write_json(asked.out / f"{name}.json", found)


if __name__ == "__main__":
    main()
