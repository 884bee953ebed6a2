"""Folders of results that a stranger hands over: nothing in them may make the service delete, show or run a thing.

Each round is a copy of sound results in which something was planted beside a folder that is nobody's business. Whatever
the service does with it, refusing to start in plain words included, that folder stays as it was, no answer holds what
lies in it, no program is started, and the service neither hangs nor swells.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from bench.attack_target import BEARER, Finding, Target, wait_for
from bench.hostile import picture, png_bomb
from bench.serving import Service

MARK = b"PRIVATE-7d3f"  # In every file that no answer may show
HOUSEKEEPING = 9.0  # Seconds after which the service has looked through its folder, and emptied its trash
SLOWEST, MOST_MB = 10.0, 700  # Of an answer, and of the web process
FILES = ("summary", "graph", "regions.geojson", "mask", "report", "overlay.png", "thumbnail.jpg", "familiarity.jpg")
MORE = ("", "/tiles", "/tiles/slide/8/0_0.jpg", "/tiles/tissue/8/0_0.png", "/at?x=9&y=9", "/regions/1", "/corrections")
MORE += ("/corrections/regions", *(f"/{name}" for name in FILES), *(f"/corrected/{name}" for name in FILES[:6]))
QUOTES = 'ntrm_session="' + '\\"' * 31_000


def linked(*names: str) -> Callable[[Path, Path], None]:
    """These names in the folder lead to the private folder, or to the file in it."""

    def plant(out: Path, outside: Path) -> None:
        for name in names:
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(outside if name.endswith(FOLDERS) else outside / "secret")

    return plant


FOLDERS = ("trash", "incoming", "uploads", "thumbnails", ".service", ".ntrm", "corrected", "stranger")


def written(name: str, content: Callable[[], bytes]) -> Callable[[Path, Path], None]:
    """A file of the folder with other content."""
    return lambda out, _: (out / name).write_bytes(content())  # type: ignore[return-value]


def stranger_rows(out: Path, outside: Path) -> None:
    """Jobs whose folders and sources lie outside."""
    from ntrm.service.jobs.database import JobStore

    database = out / ".service" / "service.sqlite"
    JobStore(database).close()
    names = (str(outside), os.path.relpath(outside, out), "../outside/inner", ".", "stranger")
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for number, slide_id in enumerate(names):
            cells = (f"{number:024x}", slide_id, os.fsencode(outside / "secret.jpg"))
            query = "INSERT INTO slides (id, slide_id, name, origin, source, created)"
            connection.execute(f"{query} VALUES (?1, ?2, 'x', 'path', ?3, 1)", cells)
            query = "INSERT INTO jobs (slide, kind, status, due, finished)"
            connection.execute(f"{query} VALUES (?1, 'segment', 'failed', 1, 1)", cells[:1])


def a_pipe(out: Path, _: Path) -> None:
    """Whoever opens it waits for ever."""
    (out / "slide" / ".ntrm" / "done.json").unlink()
    os.mkfifo(out / "slide" / ".ntrm" / "done.json")


def strange_names(out: Path, _: Path) -> None:
    """Folders that some systems, JSON or SQLite cannot name."""
    for name in (b"\xff\xfe", b"SLIDE", b"Slide", b"a\x1b[2Jb", "\u202egnp".encode(), b"x" * 200):
        shutil.copytree(out / "slide", out / os.fsdecode(name))
    for name in ("summary.json", ".ntrm/done.json"):
        path = out / "slide" / name
        path.write_text(path.read_text().replace('"slide"', '"\\ud800"'))


def unpacking_arrays() -> bytes:
    """A megabyte that unpacks to a gibibyte."""
    stream, head = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (2**30,)})
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("labels", "parts", "grid"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                file.write(head.getvalue())
                for _ in range(2**6):
                    file.write(bytes(2**24))
    return stream.getvalue()


def many_corrections(out: Path, _: Path) -> None:
    """A sound log of as many steps as nobody clicks."""
    from ntrm.correct.log import Step
    from ntrm.correct.mask import open_mask

    step = asdict(Step(action="draw", tissue="BCC", named="", origin="page", when="2026-01-01T00:00:00Z"))
    lines = [asdict(open_mask(out / "slide").record), *({**step, "number": number} for number in range(1, 300_001))]
    (out / "slide" / "corrections.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


PLANTS: tuple[tuple[str, Callable[[Path, Path], None]], ...] = (
    ("rows of jobs", stranger_rows),
    *((f"link {name}", linked(f".service/{name}")) for name in ("trash", "incoming", "uploads", "service.sqlite")),
    ("link .service", linked(".service")),
    ("links as locks", linked(".lock", "slide/.ntrm/lock", "slide/.ntrm/corrections.lock")),
    ("link corrections.jsonl", linked("slide/corrections.jsonl")),
    *((f"link {x}", linked(f"slide/{x}")) for x in ("report.html", "overlay.png", "slide.jpg", "mask.ome.tif")),
    ("link .ntrm", linked("slide/.ntrm")),
    ("link as a slide", linked("stranger")),
    ("PostScript as slide.jpg", written("slide/slide.jpg", lambda: b"%!PS\n(x) run\n")),
    ("huge PNG as slide.jpg", written("slide/slide.jpg", png_bomb)),
    ("pipe as done.json", a_pipe),
    ("npz bomb", written("slide/.ntrm/texture.npz", unpacking_arrays)),
    ("300,000 corrections", many_corrections),
    ("names and surrogates", strange_names),
)  # fmt: skip


def folders(target: Target, finding: Finding) -> None:
    """A service on each planted folder; ``segment`` on the one with a pipe."""
    here = target.folder / "planted"
    sound, tools, outside = here / "sound", here / "bin", here / "outside"
    tools.mkdir(parents=True)
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {here}/ran\n")
    (tools / "gs").chmod(0o755)
    line = [sys.executable, "-m", "ntrm", "segment", str(target.service.root / "small.tif"), "--out"]
    (here / "slide.csv").write_text(f"slide,slide_id\n{target.service.root / 'small.tif'},slide\n")
    line[4] = str(here / "slide.csv")
    if subprocess.run([*line, str(sound), "-q"], capture_output=True, check=False, timeout=120).returncode:
        finding.faults.append("no sound results could be made")
        return
    refused, worst = 0, 0.0
    for name, plant in PLANTS:
        finding.tries += 1
        shutil.rmtree(outside, ignore_errors=True)
        (outside / "inner").mkdir(parents=True)
        for secret in (outside / "secret", outside / "secret.jpg", outside / "inner" / "secret"):
            secret.write_bytes(picture(target.seed) + MARK)
        out = here / name.replace("/", " ")
        shutil.copytree(sound, out)
        plant(out, outside)
        before, first = digest(outside), len(target.answers)
        answered, slowest = _served(target, out, here, name, finding)
        refused, worst = refused + (not answered), max(worst, slowest)
        finding.check(digest(outside) == before, f"{name}: files outside were changed or deleted")
        finding.check(not any(MARK in content for _, content in target.answers[first:]), f"{name}: a file was shown")
        finding.check(not (here / "ran").exists(), f"{name}: a program was run")
        (here / "ran").unlink(missing_ok=True)
        if plant is a_pipe:
            try:
                subprocess.run([*line, str(out), "-q"], capture_output=True, check=False, timeout=90)
            except subprocess.TimeoutExpired:
                finding.faults.append(f"{name}: ntrm segment hangs")
        shutil.rmtree(out, ignore_errors=True)
    finding.seen = f"nothing lost, nothing shown, nothing run; {refused} refused at start, slowest answer {worst:.1f} s"


def _served(target: Target, out: Path, here: Path, name: str, finding: Finding) -> tuple[bool, float]:
    """Ask a service on the folder for everything, and end it; whether it started, and its slowest answer."""
    log = here / f"{name.replace('/', ' ')}.log"
    wait = HOUSEKEEPING if (out / ".service").exists() else 0.0
    variables = {"PATH": f"{here / 'bin'}:{os.environ['PATH']}"}
    try:
        service = Service(out, target.service.root, log=log, seconds=40, environment=variables)
    except SystemExit:
        told = log.read_text(errors="replace")
        finding.check(
            "error:" in told and "Traceback" not in told, f"{name}: it did not start: {told.strip()[-80:] or 'it hung'}"
        )
        return False, 0.0
    other = Target(service, target.folder, target.seed, target.answers)
    slowest, until = 0.0, time.monotonic() + wait
    try:
        slides = other.json("/v1/slides").get("slides", [])
        seen = [slide["slide_id"] for slide in slides if slide["has_image"] and slide["created"] < "1971"]
        finding.check(not seen, f"{name}: the picture of {seen} is shown")
        for key in [slide["id"] for slide in slides] or ["0" * 24]:
            url = f"/v1/slides/{key}"
            draw = {
                "action": "draw",
                "version": 0,
                "kind": "area",
                "points": [[5, 5], [60, 5], [60, 60]],
                "tissue": "BCC",
            }
            asked: list[tuple[str, str, Any]] = [("GET", url + more, None) for more in MORE]
            asked += [("POST", f"{url}/corrections", draw), ("POST", f"{url}/retry", {}), ("DELETE", url, None)]
            for method, path, body in asked:
                begun = time.monotonic()
                status = other.ask(method, path, body, seconds=4 * SLOWEST).status
                slowest = max(slowest, time.monotonic() - begun)
                finding.check(0 < status != 500, f"{name}: {status or 'no answer'} to {method} {path[-30:]}")
                finding.check(time.monotonic() - begun < SLOWEST, f"{name}: {path[-30:]} took {slowest:.0f} s")
        time.sleep(max(0.0, until - time.monotonic()))
        finding.check(other.is_well(), f"{name}: /healthz did not answer")
        memory = service.peak_mb()
        finding.check(memory < MOST_MB, f"{name}: the web process took {memory:.0f} MB")
        service.process.send_signal(signal.SIGTERM)
        ended = wait_for(lambda: service.process.poll() is not None, 20)
        finding.check(ended, f"{name}: it ignores SIGTERM")
        finding.check("Traceback" not in log.read_text(errors="replace"), f"{name}: a traceback in the log")
    finally:
        service.kill()
    return True, slowest


def quotes(target: Target, finding: Finding) -> None:
    """A cookie that a slow parser takes long over; others wait meanwhile."""
    slowest = 0.0
    for headers in ({"Cookie": QUOTES}, {"Cookie": QUOTES, **BEARER}, {"Cookie": QUOTES[:-1]}):
        begun = time.monotonic()
        finding.tries += 1
        status = target.ask("GET", "/v1/about", headers=headers, seconds=60).status
        slowest = max(slowest, time.monotonic() - begun)
        finding.check(status in (200, 400, 401, 431), f"{status} to a long cookie")
    finding.check(slowest < 2, f"a long cookie took {slowest:.1f} s")
    finding.seen = f"slowest answer {slowest:.2f} s"


def digest(folder: Path) -> str:
    """Of every name and byte below a folder, and of where its links lead."""
    parts = [os.fsencode(path) + _content(path) for path in sorted(folder.rglob("*"))]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return path.read_bytes() if path.is_file() else b""
