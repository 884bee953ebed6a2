"""``ntrm reproduce``: the paper's tables, figures and claims, and the ablation it leaves out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command


@command
def reproduce(
    console: Console,
    data: options.Data,
    out: Path,
    archs: str = "",
    resolutions: str = "",
    seeds: str = "0,1,2",
    recipe: str = "fast",
    changes: options.Changes = None,
    option: list[str] | None = None,
    ablation: bool = True,
    splits: options.Splits = None,
    boundaries: options.Boundaries = True,
    device: options.Device = "auto",
    num_devices: options.CountOrNone = None,
    per_device: options.Count = 1,
    jobs: options.Jobs = options.JOBS,
    dry_run: bool = False,
    commands: bool = False,
) -> int:
    """Train and evaluate every network of the paper, test its claims, and write one page with tables and figures.

    After an interruption, the same command continues. Runs are distributed over the GPUs; a run that fails is reported,
    and the others continue. To share the runs, start the same command on other machines with the same --out, or run the
    lines of --commands as the jobs of a cluster, and this command at the end.

    Network: downloads ImageNet weights from the hub if the recipe needs them (paper does) and none are stored here.

    Example: ntrm reproduce --data DIR --out OUT --recipe paper --seeds 0,1,2

    ntrm reproduce --data DIR --out OUT --archs ntrm-paper,unet-resnet18 --set steps=500 --no-ablation --dry-run

    Args:
        out (OUT): Folder for runs, tables and index.html.
        archs (A,B): Networks of Table 1; all six if not given.
        resolutions (10x,5x): Levels of Table 2; the paper's if not given.
        seeds (0,1,2): Training seeds of every network.
        recipe (R): paper, fast or a YAML file.
        option (KEY=VALUE): Option of the architecture, for every network that has it; may be repeated.
        ablation: Whether to train the variants of the relation module, too.
        num_devices (N): GPUs to use; all if not given.
        per_device (N): Number of runs at the same time on one GPU.
        dry_run: Only show the plan.
        commands: Only print the commands of the runs that are not done, a line each.

    """
    from ntrm.core.mpp import parse_levels
    from ntrm.paper.plan import Request, describe
    from ntrm.paper.published import SYSTEMS
    from ntrm.paper.reproduce import reproduce as run
    from ntrm.training.recipe import parse_overrides, parse_yaml

    request = Request(
        data=data,
        out=out,
        archs=tuple(name.strip() for name in archs.split(",") if name.strip()) or SYSTEMS,
        resolutions=parse_levels(resolutions) if resolutions else (),
        seeds=tuple(parse_yaml(f"[{seeds}]", "the seeds")),
        recipe=recipe,
        overrides=parse_overrides(changes or []),
        options=parse_overrides(option or []),
        ablation=ablation,
        split_file=splits,
        boundaries=boundaries,
    )
    if commands:
        lines = request.commands_left()
        console.result({"commands": lines}, *lines)
        return 0
    if dry_run:
        plan = request.plan()
        done = {job.key: request.is_done(job) for job in plan.jobs}
        lines = [f"{'done ' if done[job.key] else 'to do'}  {job.label}" for job in plan.jobs]
        lines = [*plan.notes, *lines, f"{len(done)} runs, {sum(done.values())} of them done"]
        console.result({**describe(plan), "done": sum(done.values())}, *lines)
        return 0
    work: dict[str, Any] = {"device": device, "num_devices": num_devices, "per_device": per_device, "jobs": jobs}
    result = run(request, **work, command=["ntrm", *sys.argv[1:]], progress=console.progress, say=console.note)
    count, page = len(result.results.outcomes), result.page.resolve().as_uri()
    finished = f"{count - len(result.results.lacking)} of {count} runs have results."
    failed = [f"failed: {label}" for label in result.failures]
    console.result(result.as_dict(), *failed, finished, f"open in a browser: {page}")
    return int(bool(result.failures))
