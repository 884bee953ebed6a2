"""`ntrm serve` under attack: what must hold, whatever is sent, killed or filled up.

    python bench/attack_service.py [--seconds 180] [--seed 1] [--only NAME] [--out FILE]

The program starts services of its own on loopback, on free ports, in a temporary folder, and ends by itself. Everything
random comes from the seed. It prints a table: attack, tries, what must hold, what was seen; and ends with 1 where
anything did not hold or there was no time left to try it. A full disk is tried on a small disk in memory, where the
system lets the program mount one.

What needs minutes (bytes that drip) is begun first and looked at last.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.attack_target import (
    BEARER,
    PATIENCE,
    Finding,
    Target,
    below,
    files_of,
    wait_for,
    workers_of,
)
from bench.hostile import hostile_files, malformed_requests, path_tricks, picture, sound_slide, sparse_slide, vms
from bench.serving import TOKEN, Service, write_large

DESCRIPTORS = 1024
UNFINISHED = 1150
CANCELLED = 2.5
"""Seconds until a job is over, with what asking for it takes."""
DISK_MB = 48
MARK = b"PRIVATE-7d3f"


def unfinished_headers(target: Target, finding: Finding) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNFINISHED + 200
    room = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, room), hard))
    count, open_ones, worst = min(UNFINISHED, room - 200), [], 0.0
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", target.port), PATIENCE)
            open_ones.append(connection)
            connection.sendall(b"GET / HTTP/1.1\r\n")
        finding.tries = count
        for _ in range(5):
            begun = time.monotonic()
            if not target.is_well():
                finding.fault("/healthz did not answer")
            worst = max(worst, time.monotonic() - begun)
        held = target.service.descriptors()["socket"]
        if held > DESCRIPTORS * 3 // 4:
            finding.fault(f"{held} connections are held")
        finding.seen = f"/healthz within {worst:.2f} s, {held} sockets held"
    except OSError as error:
        finding.fault(f"no further connection: {error}")
    finally:
        for connection in open_ones:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def malformed(target: Target, finding: Finding) -> None:
    statuses: Counter[str] = Counter()
    for content in malformed_requests(target.seed, 1500, target.port):
        finding.tries += 1
        found = target.exchange(content)
        if found is None:
            finding.fault(f"no answer to {content[:40]!r}")
            continue
        status = found[9:12].decode("latin-1") if found.startswith(b"HTTP/") else "closed"
        statuses[status] += 1
        if status.startswith("5") and status != "503":
            finding.fault(f"{status} to {content[:60]!r}")
    if not target.is_well():
        finding.fault("/healthz did not answer")
    finding.seen = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))


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
    seen: Counter[int] = Counter()
    for headers in wrong:
        for path in paths:
            finding.tries += 1
            status, _ = target.ask("POST" if path == "/v1/links" else "GET", path, headers=headers)
            seen[status] += 1
            if status not in (400, 401, 403, 421):
                finding.fault(f"{status} for {path} with {str(headers)[:60]}")
    finding.seen = ", ".join(f"{status}: {count}" for status, count in sorted(seen.items()))


def paths(target: Target, finding: Finding) -> None:
    """Names of files outside in every parameter."""
    before, first = {*target.folder.iterdir()}, len(target.answers)
    tricks = path_tricks(str(target.secret), str(target.service.root))
    for trick in tricks:
        inside = quote(trick, safe="")
        requests: list[tuple[str, str, Any]] = [
            ("POST", "/v1/slides", {"path": trick}),
            ("POST", "/v1/slides", {"path": trick, "slide_id": trick[:100]}),
            *(("GET", f"{place}{inside}", None) for place in ("/page/", "/v1/slides/", "/open/", "/v1/slides?status=")),
            ("GET", f"/v1/slides/{inside}/tiles/{inside}/0/0_0.jpg", None),
            ("GET", f"/v1/slides/{'0' * 24}/{inside}", None),
            ("DELETE", f"/v1/slides/{inside}", None),
            *(
                ("GET", place + trick.encode("ascii", "ignore").decode().replace(" ", ""), None)
                for place in ("/page/",)
            ),
        ]
        for method, path, body in requests:
            if any(ord(each) < 33 for each in path):
                continue
            finding.tries += 1
            status, _ = target.ask(method, path[:8000], body)
            if status in (200, 202, 204) or status >= 500:
                finding.fault(f"{status} to {method} {path[:60]} {str(body)[:60]}")
    leaks = [where for where, content in target.answers[first:] if MARK in content]
    for where in leaks:
        finding.fault(f"{where} shows a private file")
    if {*target.folder.iterdir()} != before:
        finding.fault("files appeared outside the folder of the results")
    finding.seen = "all refused, nothing shown, nothing written"


def uploads(target: Target, finding: Finding) -> None:
    """Files that are no slides, or slides that no one should open."""
    taken: list[str] = []
    slowest, files = ("", 0.0), hostile_files(target.seed, str(target.secret))
    for name, content in files.items():
        finding.tries += 1
        begun = time.monotonic()
        status, answer = target.upload(content, mpp=0.25)
        slowest = max(slowest, (name, time.monotonic() - begun), key=lambda each: each[1])
        if status == 202:
            taken.append(json.loads(answer)["id"])
            if not name.startswith(("damaged", "cut")):
                finding.fault(f"{name} was accepted")
        elif not 400 <= status < 500:
            finding.fault(f"{status} to {name}")
    for key in taken:
        target.ask("DELETE", f"/v1/slides/{key}")
    status, answer = target.upload(sound_slide(target.seed))
    if status != 202:
        finding.fault(f"a sound slide afterwards: {status}")
    else:
        target.ask("DELETE", f"/v1/slides/{json.loads(answer)['id']}")
    wait_for(lambda: not files_of(target.hidden, "uploads"), 10)
    if left := files_of(target.hidden, "uploads"):
        finding.fault(f"{len(left)} files were left behind")
    refused = len(files) - len(taken)
    finding.seen = f"{refused} refused, {len(taken)} damaged ones readable; slowest {slowest[1]:.1f} s ({slowest[0]})"


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
        status, answer = target.ask("POST", "/v1/slides", {"path": name, "mpp": 0.5}, seconds=70)
        took = time.monotonic() - begun
        slowest = max(slowest, took)
        if not 400 <= status < 500:
            finding.fault(f"{status} to {name}")
        if status == 202:
            target.ask("DELETE", f"/v1/slides/{json.loads(answer)['id']}")
        if took > PATIENCE:
            finding.fault(f"{name} held a reader for {took:.0f} s")
    finding.seen = f"all refused, slowest {slowest:.1f} s"


def environment(target: Target, finding: Finding) -> None:
    """The token is not in reach of whoever takes over a process that decodes."""
    target.upload(b"II*\x00" + bytes(100))
    for pid in below(target.service.process.pid):
        with contextlib.suppress(OSError):
            finding.tries += 1
            if TOKEN.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                finding.fault("a child has the token in its environment")
    finding.seen = "no child has it"


def links(target: Target, finding: Finding) -> None:
    """Guesses at the one-time link."""
    audit, count = target.hidden / "audit.jsonl", 2000
    before = audit.stat().st_size
    _, content = target.ask("POST", "/v1/links")
    link = json.loads(content)["path"]
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE)
    for number in range(count):
        connection.request("GET", f"/open/{number:x}")
        answer = connection.getresponse()
        answer.read()
        finding.tries += 1
        if answer.status in (200, 303) and "set-cookie" in {name.lower() for name, _ in answer.getheaders()}:
            finding.fault("a guess was let in")
    connection.close()
    grown = audit.stat().st_size - before
    if grown > 10_000:
        finding.fault(f"the audit log grew by {grown:,} bytes")
    opened = [target.opens(link) for _ in range(2)]
    if opened != [True, False]:
        finding.fault(f"the real link let in: {opened}")
    finding.seen = f"none let in; the audit log grew by {grown:,} bytes; the real link worked once"


def cancelling(target: Target, finding: Finding) -> None:
    """A long job is cancelled while its slide is read, while the network works, and where its worker is deaf."""
    wait_for(lambda: target.json("/v1/about").get("worker") == "ready", 90)
    times = {}
    for number, stage in enumerate(("reading", "segmenting", "deaf")):
        status, content = target.ask("POST", "/v1/slides", {"path": "large.tif", "slide_id": f"long-{number}"})
        if status != 202:
            finding.fault(f"a large slide: {status} {content[:80]!r}")
            return
        place = f"/v1/slides/{json.loads(content)['id']}"
        wanted = ("reading", "segmenting", "measuring")[number % 2 :]
        if not wait_for(lambda place=place, wanted=wanted: target.json(place).get("stage") in wanted, 60):
            finding.fault(f"it did not begin {stage}: {target.json(place).get('status')}")
            continue
        if stage == "deaf":
            for pid in workers_of(target):
                os.kill(pid, signal.SIGSTOP)
        finding.tries += 1
        begun = time.monotonic()
        target.ask("POST", f"{place}/cancel")
        wait_for(lambda place=place: target.json(place).get("status") == "cancelled", 30)
        times[stage] = time.monotonic() - begun
        target.ask("DELETE", place)
    if max(times.values(), default=0.0) > CANCELLED:
        finding.fault("cancelling took " + _seconds(times))
    finding.seen = _seconds(times)


def _seconds(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {took:.1f} s" for name, took in times.items())


def killing(target: Target, finding: Finding) -> None:
    """The worker and the service are killed; the service starts again under other names of the same folder."""
    keys = []
    for number in range(3):
        status, content = target.upload(sound_slide(target.seed + number), f"kept-{number}.tif")
        if status == 202:
            keys.append(json.loads(content)["id"])
    if len(keys) != 3:
        finding.fault(f"{len(keys)} of 3 uploads were accepted")
    out, root = target.service.out, target.service.root
    alias, other = target.folder / "alias", target.folder / "other"
    other.mkdir()
    alias.symlink_to(out)
    for spelling, folder in ((Path("../out"), other), (alias, target.folder), (Path("root/../out"), target.folder)):
        for pid in workers_of(target):
            os.kill(pid, signal.SIGKILL)
            finding.tries += 1
        target.service.kill()
        finding.tries += 1
        target.service = Service(spelling, root, folder=folder, descriptors=DESCRIPTORS)
        target.service.out = out
        listed = {each["id"] for each in target.json("/v1/slides").get("slides", [])}
        there = len(files_of(target.hidden, "uploads"))
        if not {*keys} <= listed or there < 3:
            named = spelling if not spelling.is_absolute() else "a link"
            finding.fault(f"started as {named}: {len(listed & {*keys})} of 3 listed, {there} of 3 uploads there")
    for key in keys:
        target.ask("DELETE", f"/v1/slides/{key}")
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
    status, content = target.ask("POST", "/v1/slides", {"path": "small.tif"})
    if status != 202:
        finding.fault(f"a slide by path: {status}")
        return
    place = f"/v1/slides/{json.loads(content)['id']}"
    wait_for(lambda: target.json(place).get("status") in ("done", "failed"), 60)
    _, link = target.ask("POST", "/v1/links")
    with contextlib.suppress(OSError), (disk / "filler").open("wb") as stream:
        while True:
            stream.write(bytes(4096))
            stream.flush()
    first = len(target.answers)
    health = target.ask("GET", "/healthz", headers={})
    if health[0] != 200 or b'"ok"' in health[1]:
        finding.fault(f"/healthz: {health[0]} {health[1][:60].decode()}")
    opened = target.opens(json.loads(link)["path"])
    thumbnail = target.ask("GET", f"{place}/thumbnail.jpg")[0]
    removed = target.ask("DELETE", place)[0]
    finding.tries = 4
    if removed != 204:
        finding.fault(f"DELETE: {removed}")
    (disk / "filler").unlink()
    again = target.opens(json.loads(link)["path"])
    if opened == again:
        finding.fault(f"the link let in: {opened}, with room again: {again}")
    if any(str(target.folder).encode() in content for _, content in target.answers[first:]):
        finding.fault("an answer names a path of the server")
    finding.seen = f"DELETE {removed}, thumbnail {thumbnail}, the link worked once, /healthz tells"


class Drips:
    """Connections that send a byte now and then, begun early and looked at late."""

    def __init__(self, target: Target) -> None:
        head = f"Host: 127.0.0.1:{target.port}\r\n{'Authorization: Bearer ' + TOKEN}\r\n"
        post = f"POST /v1/slides HTTP/1.1\r\n{head}Content-Length: 90000000\r\nContent-Type: "
        self._starts = {
            "headers": b"GET / HTTP/1.1\r\nX-Slow: ",
            "upload": f"{post}application/octet-stream\r\n\r\n".encode(),
            "document": f"{post}application/json\r\n\r\n".encode(),
            "refused body": f"{post}text/plain\r\n\r\n".encode(),
        }
        self.ends: dict[str, tuple[float, bytes]] = {}
        self._threads = [
            threading.Thread(target=self._drip, args=(target.port, name), daemon=True) for name in self._starts
        ]
        self.begun = time.monotonic()
        for thread in self._threads:
            thread.start()

    def _drip(self, port: int, name: str) -> None:
        found = b""
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            connection.settimeout(1.0)
            try:
                connection.sendall(self._starts[name])
                while True:
                    connection.sendall(b" ")
                    with contextlib.suppress(TimeoutError):
                        piece = connection.recv(2**16)
                        found += piece
                        if not piece or (found and not name.startswith("refused")):
                            break
            except OSError:
                pass
        self.ends[name] = time.monotonic() - self.begun, found

    def join(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def look(self, target: Target, finding: Finding) -> None:
        """Each is over by now."""
        self.join(max(5.0, 150 - (time.monotonic() - self.begun)))
        finding.tries = len(self._starts)
        for name in self._starts:
            if name not in self.ends:
                finding.fault(f"{name}: still open after {time.monotonic() - self.begun:.0f} s")
        if b" 408 " not in self.ends.get("upload", (0, b" 408 "))[1][:40]:
            finding.fault(f"upload: {self.ends['upload'][1][:40]!r}")
        if files_of(target.hidden, "incoming"):
            finding.fault("a part of the upload was left")
        finding.seen = "given up: " + _seconds({name: took for name, (took, _) in self.ends.items()})


ATTACKS: tuple[tuple[str, str, Callable[[Target, Finding], None]], ...] = (
    ("unfinished headers", "others come in meanwhile; connections stay below the descriptors", unfinished_headers),
    ("malformed requests", "an answer, never an internal error", malformed),
    ("strangers: host, origin, token", "nothing without the right ones", strangers),
    ("paths in every parameter", "nothing outside a root is read or written", paths),
    ("hostile uploads", "refused, not kept, and soon", uploads),
    ("below a root: pipes, links, files of files", "nothing outside, no waiting", below_a_root),
    ("secrets of the reading processes", "they have none", environment),
    ("guesses at the one-time link", "none gets in, the disk does not fill", links),
    ("cancelling a long job", "over within 2 s", cancelling),
    ("kill -9, starts under other names", "every accepted upload stays", killing),
    ("full disk", "slides can be deleted, the link stays, no path in an answer", full_disk),
)
DRIPS = ("bytes that drip: headers, bodies", "given up, and nothing left behind")


def attack(target: Target, until: float, only: str | None, tell: Callable[[str], None]) -> list[Finding]:
    """All of it, in order; what there is no time for is not tried."""
    drips = Drips(target) if only is not None and only in DRIPS[0] else None
    findings: list[Finding] = []
    for name, holds, run in ATTACKS:
        if only is not None and only not in name:
            continue
        finding = Finding(name, holds)
        findings.append(finding)
        if time.monotonic() > until:
            finding.skipped = "no time left"
            finding.fault(finding.skipped)
            continue
        if run is killing and drips is not None:
            # They would end with the service.
            late = Finding(*DRIPS)
            drips.look(target, late)
            findings.insert(-1, late)
            tell(f"{late.attack}: {late.verdict}")
            drips = None
        begun = time.monotonic()
        run(target, finding)
        if run is unfinished_headers and only is None:
            # Not before: they would be the oldest, and make room.
            drips = Drips(target)
        if target.service.process.poll() is not None:
            finding.fault("the service ended")
        tell(f"{name}: {finding.verdict} [{time.monotonic() - begun:.1f} s]")
    if drips is not None:
        late = Finding(*DRIPS)
        drips.look(target, late)
        findings.append(late)
    return findings


def table(findings: Iterable[Finding]) -> str:
    """For people, and for docs/serve.md."""
    rows = [f"| {each.attack} | {each.tries:,} | {each.holds} | {each.verdict} |" for each in findings]
    return "\n".join(["| attack | tries | what must hold | what was seen |", "|---|---|---|---|", *rows])


def exit_code(findings: Iterable[Finding]) -> int:
    """1 where anything did not hold."""
    return int(any(each.faults for each in findings))


@contextlib.contextmanager
def attacked(seed: int) -> Iterator[Target]:
    """A service in a temporary folder, with a few slides below its root and a private picture beside it."""
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
        args.out.write_text(json.dumps([asdict(each) for each in findings], indent=2) + "\n")
    sys.exit(exit_code(findings))


if __name__ == "__main__":
    main()
