"""Speed and memory of the networks: NTRM beside its matched control, all ratios from one run.

    python bench/network_speed.py --device cuda --out speed.json
    python bench/network_speed.py --device cpu --batches 4 --parts inference --out speed-cpu.json

Parts: inference (compiled, lowest useful precision, channels-last), eager (float32, as written), training (a full
step: forward, loss, backward, Adam), ceilings (what the machine can copy and multiply, and the least time of a window
there), stages (of the relation module, as K, N and d grow). Times are medians; ratios pair two networks that were timed
in turns. Memory, regions as nodes and replayed steps were measured by the script of commit 7a2f76af.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ntrm.models.base import Segmentation
from ntrm.models.registry import create
from ntrm.models.trm import RelationConfig, TissueRelation, edges, nodes

PAIR = ("ntrm-control", "ntrm-paper")
WINDOW = 256


def timed(work: Callable[[], Any], device: str, repeats: int) -> float:
    """Milliseconds of one call."""
    if device == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / repeats
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - begin) * 1e3 / repeats


def in_turns(works: dict[str, Callable[[], Any]], device: str, rounds: int, repeats: int) -> dict[str, float]:
    """Median milliseconds of several works, timed in turns so that a drift of the machine hits all of them."""
    for work in works.values():
        for _ in range(3):
            work()
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            samples[name].append(timed(work, device, repeats))
    return {name: statistics.median(values) for name, values in samples.items()}


def network(name: str, device: str) -> nn.Module:
    """By the name of its architecture, perhaps with options: ``ntrm-paper nodes=region regions=4``."""
    torch.manual_seed(0)
    arch, *words = name.split()
    options = {key: int(value) if value.isdigit() else value for key, value in (word.split("=") for word in words)}
    return create(arch, **options).to(device).to(memory_format=torch.channels_last)


def windows(batch: int, device: str) -> Tensor:
    return torch.randn(batch, 3, WINDOW, WINDOW, device=device).to(memory_format=torch.channels_last)


def autocast(device: str) -> torch.autocast:
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def infer(net: nn.Module, x: Tensor, kind: str) -> Segmentation:
    with torch.inference_mode(), autocast(kind):
        return net(x, coarse=False)


def step(net: Any, optimiser: torch.optim.Optimizer, x: Tensor, target: Tensor, kind: str) -> None:
    with autocast(kind):
        out = net(x)
        loss = nn.functional.cross_entropy(out.final, target)
        loss = loss + 0.4 * nn.functional.cross_entropy(out.coarse, target)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def rows_of(batch: int, times: dict[str, float]) -> list[dict[str, Any]]:
    control = times[PAIR[0]]
    rows = [
        {"batch": batch, "network": name, "ms": ms, "tiles_per_s": batch / ms * 1e3, "over_control": ms / control}
        for name, ms in times.items()
    ]
    print(rows, flush=True)
    return rows


def inference(names: list[str], batches: list[int], device: str, compiled: bool) -> list[dict[str, Any]]:
    """Without the coarse output the compiler drops the control's coarse head, which NTRM needs: the stricter ratio."""
    rows = []
    for batch in batches:
        torch._dynamo.reset()
        x = windows(batch, device)
        works = {}
        for name in names:
            net = network(name, device).eval()
            if compiled:
                mode = "reduce-overhead" if device == "cuda" else "default"
                net = torch.compile(net, fullgraph=True, mode=mode)

            works[name] = partial(infer, net, x, device if compiled else "cpu")
        times = in_turns(works, device, rounds=9, repeats=5 if device == "cuda" else 1)
        rows += rows_of(batch, times)
    return rows


def training(names: list[str], batches: list[int], device: str, compiled: bool) -> list[dict[str, Any]]:
    """A whole step."""
    rows = []
    for batch in batches:
        torch._dynamo.reset()
        x, target = windows(batch, device), torch.randint(12, (batch, WINDOW, WINDOW), device=device)
        works = {}
        for name in names:
            net = network(name, device).train()
            optimiser = torch.optim.Adam(net.parameters(), lr=1e-4, fused=device == "cuda")
            forward = torch.compile(net, fullgraph=True) if compiled else net

            works[name] = partial(step, forward, optimiser, x, target, device if compiled else "cpu")
        times = in_turns(works, device, rounds=7, repeats=5 if device == "cuda" else 1)
        rows += rows_of(batch, times)
    return rows


def ceilings(device: str) -> dict[str, float]:
    """Bytes per second of a copy and operations per second of a bfloat16 matrix product."""
    size = 2**28 if device == "cuda" else 2**25
    a = torch.randn(size, device=device)
    b = torch.empty_like(a)
    copy = in_turns({"copy": lambda: b.copy_(a)}, device, 7, 5)["copy"]
    side = 8192 if device == "cuda" else 1024
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    m = torch.randn(side, side, device=device, dtype=kind)
    product = in_turns({"mm": lambda: m @ m}, device, 7, 5)["mm"]
    return {"copy_bytes_per_s": 2 * a.nbytes / copy * 1e3, "multiply_per_s": 2 * side**3 / product * 1e3}


def floor(limits: dict[str, float], device: str) -> list[dict[str, Any]]:
    """Least time of a window: its operations at the multiply ceiling; its activations, written and read once."""
    from torch.utils.flop_counter import FlopCounterMode

    rows = []
    for name in PAIR:
        net = network(name, "cpu").eval()
        moved = 0

        def count(_: nn.Module, __: Any, out: Any) -> None:
            nonlocal moved
            if isinstance(out, Tensor):
                moved += 2 * out.numel()

        hooks = [m.register_forward_hook(count) for m in net.modules() if isinstance(m, nn.Conv2d | nn.ReLU)]
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            net(torch.zeros(1, 3, WINDOW, WINDOW), coarse=False)
        for hook in hooks:
            hook.remove()
        bytes_moved = moved * (2 if device == "cuda" else 4)
        rows.append(
            {
                "network": name,
                "gflop": counter.get_total_flops() / 1e9,
                "arithmetic_us": counter.get_total_flops() / limits["multiply_per_s"] * 1e6,
                "memory_us": bytes_moved / limits["copy_bytes_per_s"] * 1e6,
            }
        )
    return rows


def stage_times(device: str, classes: int, side: int, dim: int, batch: int = 16) -> dict[str, float]:
    """Microseconds per image of each stage of the relation module, uncompiled, so that stages stay apart."""
    module = TissueRelation(128, classes, RelationConfig(dim=dim)).to(device).eval()
    features = torch.randn(batch, 128, side, side, device=device)
    probabilities = torch.randn(batch, classes, side, side, device=device).mul(6).softmax(1)
    with torch.inference_mode():
        masks = nodes.propose(probabilities, 0.5)
        _, touching, ratios = edges.contacts(masks)
        refined = module.psi(features)
        states = nodes.pool(refined, masks)
        embedded = module.edge(states, ratios)
        works = {
            "Reg": lambda: nodes.propose(probabilities, 0.5),
            "psi": lambda: module.psi(features),
            "Node": lambda: nodes.pool(refined, masks),
            "Adj, Bnd": lambda: edges.contacts(masks),
            "Edge": lambda: module.edge(states, ratios),
            "layers": lambda: _layers(module, states, touching, embedded),
            "Proj": lambda: module.projection(states, masks),
        }
        times = in_turns(works, device, rounds=5, repeats=10 if device == "cuda" else 2)
    return {name: ms / batch * 1e3 for name, ms in times.items()}


def _layers(module: TissueRelation, states: Tensor, touching: Tensor, embedded: Tensor) -> Tensor:
    for layer in module.layers:
        states, _ = layer(states, touching, embedded, None)
    return states


def stages(device: str) -> list[dict[str, Any]]:
    base = {"classes": 12, "side": 32, "dim": 128}
    grid = [base]
    grid += [{**base, "classes": k} for k in (4, 8, 16, 32)]
    grid += [{**base, "side": n} for n in (16, 64, 128)]
    grid += [{**base, "dim": d} for d in (32, 64, 256)]
    return [{**sizes, "us_per_image": stage_times(device, **sizes)} for sizes in grid]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", default="ceilings,stages,eager,inference,training")
    parser.add_argument("--batches", default="4,32,128")
    parser.add_argument("--others", default="unet-resnet18", help="further networks to time")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device, parts = args.device, args.parts.split(",")
    batches = [int(b) for b in args.batches.split(",")]
    names = [*PAIR, *[n for n in args.others.split(",") if n]]
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    machine = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    report: dict[str, Any] = {"machine": machine, "torch": torch.__version__, "window": WINDOW}
    small = [b for b in batches if b <= 64] or batches
    plan: dict[str, Callable[[], Any]] = {
        "inference": lambda: inference(names, batches, device, compiled=True),
        "training": lambda: training(list(PAIR), small, device, compiled=True),
        "eager": lambda: {
            "inference": inference(names, small, device, compiled=False),
            "training": training(list(PAIR), small[:1], device, compiled=False),
        },
        "stages": lambda: stages(device),
    }
    if "ceilings" in parts:
        report["ceilings"] = ceilings(device)
        report["floor"] = floor(report["ceilings"], device)
    for part in parts:
        if part in plan:
            report[part] = plan[part]()
            if args.out:
                args.out.write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
