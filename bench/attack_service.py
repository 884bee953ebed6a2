"""`ntrm serve` under attack: what must hold, whatever is sent, killed or filled up.

    python bench/attack_service.py [--seconds 180] [--seed 1] [--only NAME] [--out FILE]

The program starts services of its own on loopback, on free ports, in a temporary folder, and ends by itself. Everything
random comes from the seed. It prints a table: attack, tries, what must hold, what was seen; and ends with 1 where
anything did not hold or there was no time left to try it. A full disk is tried on a small disk in memory, where the
system lets the program mount one.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.attack_corrections import corrections
from bench.attack_folders import MARK, folders, quotes
from bench.attack_target import BEARER, PATIENCE, Finding, Target, wait_for
from bench.hostile import hostile_files, malformed_requests, path_tricks, picture, sound_slide, sparse_slide, vms
from bench.serving import TOKEN, Service, write_large

DESCRIPTORS = 1024
CANCELLED = 2.5  # Seconds until a job is over, with what asking for it takes
DISK_MB = 48


def malformed(target: Target, finding: Finding) -> None:
    statuses: Counter[str] = Counter()
    for content in malformed_requests(target.seed, 1500, target.port):
        finding.tries += 1
        answer = target.exchange(content)
        if answer is None:
            finding.faults.append(f"no answer to {content[:40]!r}")
            continue
        status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/") else "closed"
        statuses[status] += 1
        finding.check(status == "503" or status[0] != "5", f"{status} to {content[:60]!r}")
    finding.check(target.is_well(), "/healthz did not answer")
    finding.seen = _counts(statuses)


def _counts(statuses: Counter[str]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))


def strangers(target: Target, finding: Finding) -> None:
    """Names, origins and tokens that are not the service's."""
    hosts = ("evil.example", "127.0.0.1.evil.example", "evil.example:80", "localhost.evil", "", "[::1", "0.0.0.0")
    origins = (
        "http://evil.example",
        "null",
        "https://127.0.0.1.evil",
        "file://",
        f"http://localhost:{target.port + 1}",
    )
    tokens = ("", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), " " * 40, "é" * 20, "a" * 7000)
    paths = ("/v1/slides", "/v1/about", "/openapi.json", "/", "/v1/links")
    wrong = [{**BEARER, "Host": host} for host in hosts] + [{**BEARER, "Origin": origin} for origin in origins]
    wrong += [{"Authorization": f"Bearer {token}".encode().decode("latin-1")} for token in tokens]
    wrong += [{"Cookie": f"ntrm_session={TOKEN}"}, {"Authorization": f"Basic {TOKEN}"}, {}]
    seen: Counter[str] = Counter()
    for headers in wrong:
        for path in paths:
            finding.tries += 1
            status = target.ask("POST" if path == "/v1/links" else "GET", path, headers=headers).status
            seen[str(status)] += 1
            finding.check(status in (400, 401, 403, 421), f"{status} for {path} with {str(headers)[:60]}")
    finding.seen = _counts(seen)


def paths(target: Target, finding: Finding) -> None:
    """Names of files outside in every parameter."""
    before, first = {*target.folder.iterdir()}, len(target.answers)
    for trick in path_tricks(str(target.secret), str(target.service.root)):
        inside = quote(trick, safe="")
        requests: list[tuple[str, str, Any]] = [
            ("POST", "/v1/slides", {"path": trick}),
            ("POST", "/v1/slides", {"path": trick, "slide_id": trick[:100]}),
            *(("GET", start + inside, None) for start in ("/page/", "/v1/slides/", "/open/", "/v1/slides?status=")),
            ("GET", f"/v1/slides/{inside}/tiles/{inside}/0/0_0.jpg", None),
            ("GET", f"/v1/slides/{'0' * 24}/{inside}", None),
            ("DELETE", f"/v1/slides/{inside}", None),
            ("GET", "/page/" + trick.encode("ascii", "ignore").decode().replace(" ", ""), None),
        ]
        for method, path, body in requests:
            if any(ord(letter) < 33 for letter in path):
                continue
            finding.tries += 1
            status = target.ask(method, path[:8000], body).status
            refused = status not in (200, 202, 204) and status < 500
            finding.check(refused, f"{status} to {method} {path[:60]} {str(body)[:60]}")
    for request, content in target.answers[first:]:
        finding.check(MARK not in content, f"{request} shows a private file")
    finding.check({*target.folder.iterdir()} == before, "files appeared outside the folder of the results")
    finding.seen = "all refused, nothing shown, nothing written"


def uploads(target: Target, finding: Finding) -> None:
    """Files that are no slides, or slides that no one should open."""
    accepted: list[str] = []
    seconds, slowest, files = 0.0, "", hostile_files(target.seed, str(target.secret))
    for name, content in files.items():
        finding.tries += 1
        begun = time.monotonic()
        answer = target.upload(content, mpp=0.25)
        seconds, slowest = max((seconds, slowest), (time.monotonic() - begun, name))
        if answer.status == 202:
            accepted.append(answer.json["id"])
            finding.check(name.startswith(("damaged", "cut")), f"{name} was accepted")
        else:
            finding.check(400 <= answer.status < 500, f"{answer.status} to {name}")
    refused = len(files) - len(accepted)
    finding.seen = f"{refused} refused, {len(accepted)} damaged ones readable; slowest {seconds:.1f} s ({slowest})"
    answer = target.upload(sound_slide(target.seed))
    finding.check(answer.status == 202, f"a sound slide afterwards: {answer.status}")
    target.delete(*accepted, *([answer.json["id"]] if answer.status == 202 else []))
    wait_for(lambda: not target.files("uploads"), 10)
    left = target.files("uploads")
    finding.check(not left, f"{len(left)} files were left behind")


def below_a_root(target: Target, finding: Finding) -> None:
    """Pipes, links and slides of several files under a root."""
    root = target.service.root
    os.mkfifo(root / "pipe")
    (root / "link.tif").symlink_to(target.secret)
    (root / "vms").mkdir()
    os.mkfifo(root / "vms" / "pipe.jpg")
    (root / "vms" / "outside.vms").write_bytes(vms("../../secret.jpg"))
    (root / "vms" / "pipe.vms").write_bytes(vms("pipe.jpg"))
    (root / "vms" / "device.vms").write_bytes(vms("/dev/zero"))
    slowest = 0.0
    for name in ("pipe", "link.tif", "vms/outside.vms", "vms/pipe.vms", "vms/device.vms", "vms"):
        finding.tries += 1
        begun = time.monotonic()
        answer = target.ask("POST", "/v1/slides", {"path": name, "mpp": 0.5}, seconds=70)
        took = time.monotonic() - begun
        slowest = max(slowest, took)
        finding.check(400 <= answer.status < 500, f"{answer.status} to {name}")
        finding.check(took <= PATIENCE, f"{name} held a reader for {took:.0f} s")
        if answer.status == 202:
            target.delete(answer.json["id"])
    finding.seen = f"all refused, slowest {slowest:.1f} s"


def environment(target: Target, finding: Finding) -> None:
    """The token is not in reach of whoever takes over a process that decodes."""
    target.upload(b"II*\x00" + bytes(100))
    for pid in target.children():
        with contextlib.suppress(OSError):
            finding.tries += 1
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            finding.check(TOKEN.encode() not in variables, "a child has the token in its environment")
    finding.seen = "no child has it"


def links(target: Target, finding: Finding) -> None:
    """Guesses at the one-time link."""
    audit = target.service.out / ".service" / "audit.jsonl"
    before, link = audit.stat().st_size, target.new_link()
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE)
    for number in range(2000):
        connection.request("GET", f"/open/{number:x}")
        answer = connection.getresponse()
        answer.read()
        finding.tries += 1
        finding.check("set-cookie" not in {name.lower() for name, _ in answer.getheaders()}, "a guess was let in")
    connection.close()
    grown = audit.stat().st_size - before
    finding.check(grown <= 10_000, f"the audit log grew by {grown:,} bytes")
    opened = [target.opens(link) for _ in range(2)]
    finding.check(opened == [True, False], f"the real link let in: {opened}")
    finding.seen = f"none let in; the audit log grew by {grown:,} bytes; the real link worked once"


def cancelling(target: Target, finding: Finding) -> None:
    """A long job is cancelled while its slide is read, while the network works, and where its worker is deaf."""
    wait_for(lambda: target.json("/v1/about").get("worker") == "ready", 90)
    times = {}
    for number, stage in enumerate(("reading", "segmenting", "deaf")):
        answer = target.ask("POST", "/v1/slides", {"path": "large.tif", "slide_id": f"long-{number}"})
        if answer.status != 202:
            finding.faults.append(f"a large slide: {answer.status} {answer.content[:80]!r}")
            return
        slide = f"/v1/slides/{answer.json['id']}"
        wanted = ("reading", "segmenting", "measuring")[number % 2 :]
        if not wait_for(lambda slide=slide, wanted=wanted: target.json(slide).get("stage") in wanted, 60):
            finding.faults.append(f"it did not begin {stage}: {target.json(slide).get('status')}")
            continue
        if stage == "deaf":
            for pid in target.workers():
                os.kill(pid, signal.SIGSTOP)
        finding.tries += 1
        begun = time.monotonic()
        target.ask("POST", f"{slide}/cancel")
        wait_for(lambda slide=slide: target.json(slide).get("status") == "cancelled", 30)
        times[stage] = time.monotonic() - begun
        target.ask("DELETE", slide)
    finding.seen = _seconds(times)
    finding.check(max(times.values(), default=0.0) <= CANCELLED, f"cancelling took {finding.seen}")


def _seconds(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {took:.1f} s" for name, took in times.items())


def killing(target: Target, finding: Finding) -> None:
    """The worker and the service are killed; the service starts again under other names of the same folder."""
    answers = [target.upload(sound_slide(target.seed + number), f"kept-{number}.tif") for number in range(3)]
    keys = [answer.json["id"] for answer in answers if answer.status == 202]
    finding.check(len(keys) == 3, f"{len(keys)} of 3 uploads were accepted")
    out, root = target.service.out, target.service.root
    alias, other = target.folder / "alias", target.folder / "other"
    other.mkdir()
    alias.symlink_to(out)
    for spelling, folder in ((Path("../out"), other), (alias, target.folder), (Path("root/../out"), target.folder)):
        for pid in target.workers():
            os.kill(pid, signal.SIGKILL)
            finding.tries += 1
        target.service.kill()
        finding.tries += 1
        target.service = Service(spelling, root, folder=folder, descriptors=DESCRIPTORS)
        target.service.out = out
        listed = {slide["id"] for slide in target.json("/v1/slides").get("slides", [])} & {*keys}
        there = len(target.files("uploads"))
        name = "a link" if spelling.is_absolute() else spelling
        fault = f"started as {name}: {len(listed)} of 3 listed, {there} of 3 uploads there"
        finding.check(len(listed) == len(keys) and there >= 3, fault)
    target.delete(*keys)
    finding.seen = "all uploads are there after each start"


def full_disk(target: Target, finding: Finding) -> None:
    """A service whose disk is full can be emptied through itself."""
    disk = target.folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "ntrm-attack", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        finding.skipped = "no disk could be mounted"
        return
    other = None
    try:
        other = Target(Service(disk / "out", target.service.root, log=target.folder / "full.log"), target.folder, 0)
        _fill_and_empty(other, disk, finding)
    finally:
        if other is not None:
            other.service.kill()
        subprocess.run(["umount", "-l", str(disk)], check=False)


def _fill_and_empty(target: Target, disk: Path, finding: Finding) -> None:
    answer = target.ask("POST", "/v1/slides", {"path": "small.tif"})
    if answer.status != 202:
        finding.faults.append(f"a slide by path: {answer.status}")
        return
    slide = f"/v1/slides/{answer.json['id']}"
    wait_for(lambda: target.json(slide).get("status") in ("done", "failed"), 60)
    link = target.new_link()
    with contextlib.suppress(OSError), (disk / "filler").open("wb") as stream:
        while True:
            stream.write(bytes(4096))
            stream.flush()
    first = len(target.answers)
    health = target.ask("GET", "/healthz", headers={})
    told = health.status == 200 and b'"ok"' not in health.content
    finding.check(told, f"/healthz: {health.status} {health.content[:60].decode()}")
    opened = target.opens(link)
    thumbnail = target.ask("GET", f"{slide}/thumbnail.jpg").status
    removed = target.ask("DELETE", slide).status
    finding.tries = 4
    finding.check(removed == 204, f"DELETE: {removed}")
    (disk / "filler").unlink()
    again = target.opens(link)
    finding.check(opened != again, f"the link let in: {opened}, with room again: {again}")
    for _, content in target.answers[first:]:
        finding.check(str(target.folder).encode() not in content, "an answer names a path of the server")
    finding.seen = f"DELETE {removed}, thumbnail {thumbnail}, the link worked once, /healthz tells"


ATTACKS: tuple[tuple[str, str, Callable[[Target, Finding], None]], ...] = (
    ("malformed requests", "an answer, never an internal error", malformed),
    ("strangers: host, origin, token", "nothing without the right ones", strangers),
    ("paths in every parameter", "nothing outside a root is read or written", paths),
    ("hostile uploads", "refused, not kept, and soon", uploads),
    ("below a root: pipes, links, files of files", "nothing outside, no waiting", below_a_root),
    ("secrets of the reading processes", "they have none", environment),
    ("guesses at the one-time link", "none gets in, the disk does not fill", links),
    ("nonsense as corrections", "refused, nothing written, others do not wait", corrections),
    ("a cookie of 31,000 quotes", "nobody waits", quotes),
    ("cancelling a long job", "over within 2 s", cancelling),
    ("kill -9, starts under other names", "every accepted upload stays", killing),
    ("full disk", "slides can be deleted, the link stays, no path in an answer", full_disk),
    ("folders from strangers", "nothing lost, nothing shown, nothing run, no waiting", folders),
)


def attack(target: Target, until: float, only: str | None, report: Callable[[str], None]) -> list[Finding]:
    """All of it, in order; where no time is left, nothing more is tried."""
    findings = [Finding(name, holds) for name, holds, _ in ATTACKS if only is None or only in name]
    attacks = {name: run for name, _, run in ATTACKS}
    for finding in findings:
        begun, run = time.monotonic(), attacks[finding.attack]
        if begun > until:
            finding.skipped = "no time left"
            finding.faults.append(finding.skipped)
            continue
        run(target, finding)
        finding.check(target.service.process.poll() is None, "the service ended")
        report(f"{finding.attack}: {finding.verdict} [{time.monotonic() - begun:.1f} s]")
        for fault in finding.faults[1:]:
            report(f"  {fault}")
    return findings


def table(findings: Iterable[Finding]) -> str:
    """For people, and for docs/serve.md."""
    rows = [f"| {found.attack} | {found.tries:,} | {found.holds} | {found.verdict} |" for found in findings]
    return "\n".join(["| attack | tries | what must hold | what was seen |", "|---|---|---|---|", *rows])


def exit_code(findings: Iterable[Finding]) -> int:
    """1 where anything did not hold."""
    return int(any(finding.faults for finding in findings))


@contextlib.contextmanager
def attacked(seed: int) -> Iterator[Target]:
    """A service in a temporary folder, with a few slides below its root and a private picture outside of it."""
    with tempfile.TemporaryDirectory(prefix="ntrm-attack-") as name:
        folder = Path(name)
        root = folder / "root"
        root.mkdir()
        # As coarse as the model, so that its network has much to do.
        write_large(root / "large.tif", 8000, seed, 6.7)
        (root / "small.tif").write_bytes(sound_slide(seed))
        (root / "sparse.tif").write_bytes(sparse_slide())
        target = Target(Service(folder / "out", root, descriptors=DESCRIPTORS), folder, seed)
        # After the end of a JPEG anything may follow.
        target.secret.write_bytes(picture(seed) + MARK)
        (root / "link").symlink_to(target.secret)
        (root / "folder-link").symlink_to(folder)
        try:
            yield target
        finally:
            target.service.kill()
            shutil.rmtree(folder / "out", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="attacks whose name holds this")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    # Whatever hangs: the services end with the blocks around them.
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("the time is up"))
    signal.alarm(int(args.seconds) + 180)
    until = time.monotonic() + args.seconds
    with attacked(args.seed) as target:
        findings = attack(target, until, args.only, lambda text: print(text, file=sys.stderr, flush=True))
    print(table(findings))
    if args.out is not None:
        args.out.write_text(json.dumps([asdict(finding) for finding in findings], indent=2) + "\n")
    sys.exit(exit_code(findings))


if __name__ == "__main__":
    main()
