"""`ntrm serve` as the benches run it: the process, a large slide to look at, and a client that keeps its connection."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

TOKEN = "bench-token-0123456789abcdef"
MPP, TILE = 0.5, 512
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)


def options(description: str | None, seconds: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--side", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser


def finish(found: dict[str, Any], out: Path | None) -> None:
    """Print, and write where it was asked for."""
    text = json.dumps(found, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


@contextmanager
def served(side: int, seed: int, mpp: float = MPP) -> Iterator[Service]:
    """A service with a large slide under its root; its log is shown at the end."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        root.mkdir()
        write_large(root / "large.tif", side, seed, mpp)
        service = Service(Path(name) / "out", root)
        try:
            yield service
        finally:
            service.stop()
            print((Path(name) / "serve.log").read_text(errors="replace")[-4000:], file=sys.stderr)


def write_large(path: Path, side: int, seed: int, mpp: float = MPP) -> None:
    """A pyramid of JPEG tiles, drawn once and repeated: glass with tissue in a quarter of the places."""
    import tifffile

    kinds = [encoded(np.full((TILE, TILE, 3), 245, dtype=np.uint8))] * 3 + [encoded(texture(seed))]

    def tiles(length: int) -> Iterator[bytes]:
        count = -(-length // TILE)
        return (kinds[(row // 5 + column // 7) % 4] for row in range(count) for column in range(count))

    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        for number, factor in enumerate(LEVELS):
            length = -(-side // factor)
            writer.write(
                tiles(length),
                shape=(length, length, 3),
                dtype=np.uint8,
                tile=(TILE, TILE),
                photometric="ycbcr",
                subsampling=(2, 2),
                compression="jpeg",
                resolution=(1e4 / (mpp * factor), 1e4 / (mpp * factor)),
                resolutionunit="CENTIMETER",
                subfiletype=1 if number else 0,
                metadata=None,
            )


def encoded(pixels: np.ndarray) -> bytes:
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=80, subsampling="4:2:0")
    return stream.getvalue()


def texture(seed: int) -> np.ndarray:
    """A piece of dermis as the phantom draws it."""
    from ntrm.core.labels import SKIN
    from ntrm.phantom.render import render

    mask = np.full((TILE, TILE), SKIN.index("RET"), dtype=np.uint8)
    mask[100:300, 150:400] = SKIN.index("BCC")
    return np.asarray(render(mask, 0.67, seed))


class Service:
    """``log`` and ``folder`` (to start in) are those of the results unless told; ``descriptors`` limits the process.

    It is killed where it does not start within so many ``seconds``.
    """

    def __init__(
        self,
        out: Path,
        root: Path,
        *,
        folder: Path | None = None,
        log: Path | None = None,
        descriptors: int | None = None,
        seconds: float = 300,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.out, self.root, self.large = out, root, root / "large.tif"
        self.exit_code: int | None = None
        command = [sys.executable, "-m", "ntrm", "serve", str(out), "--port", "0", "--no-open", "--json"]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command]
        self.log = (log or root.parent / "serve.log").open("ab")
        self.process = subprocess.Popen(
            [*command, "--root", str(root)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=folder,
            env={**os.environ, "NTRM_TOKEN": TOKEN, **(environment or {})},
        )
        too_late = threading.Timer(seconds, self.process.kill)
        too_late.start()
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(self.process.stdout.readline())  # type: ignore[union-attr]
            if not lines[-1]:
                too_late.cancel()
                self.process.wait()
                raise SystemExit("the service did not start")
        too_late.cancel()
        document = json.loads("".join(lines))
        if "address" not in document:
            self.process.wait(timeout=60)
            raise SystemExit(f"the service did not start: {document}")
        self.port = int(document["address"].rsplit(":", 1)[1])

    def descriptors(self) -> Counter[str]:
        """By kind: connections, pipes to other processes, files."""
        found: Counter[str] = Counter()
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                found[str(path.readlink()).split(":")[0] if ":" in str(path.readlink()) else "file"] += 1
            except OSError:
                continue
        return found

    def peak_mb(self) -> float:
        """Most memory that the web process had at any time."""
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

    def state(self) -> dict[str, Any]:
        """Descriptors by kind, processes below, memory."""
        folder, kinds = Path(f"/proc/{self.process.pid}"), self.descriptors()
        children = len((folder / "task" / str(self.process.pid) / "children").read_text().split())
        memory = int((folder / "status").read_text().split("VmRSS:")[1].split()[0]) / 1024
        every = {"descriptors": sum(kinds.values()), **dict(sorted(kinds.items()))}
        return {**every, "children": children, "memory_mb": round(memory, 1)}

    def kill(self) -> None:
        """Without any warning."""
        self.process.kill()
        self.process.wait(timeout=60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()

    def stop(self) -> None:
        self.process.terminate()
        self.exit_code = self.process.wait(timeout=60)
        self.log.close()


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def get(self, path: str, *, leave: bool = False) -> tuple[int, bytes]:
        """Status and content; with ``leave`` the connection is cut before the answer is read."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        self.writer.write(head.encode())
        await self.writer.drain()
        if leave:
            self.close()
            return 0, b""
        return await answer(self.reader)  # type: ignore[arg-type]

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    length = int(head.split("content-length:")[1].split("\r\n")[0]) if "content-length:" in head else 0
    return status, await reader.readexactly(length)


async def ask(port: int, path: str) -> Any:
    client = Client(port)
    status, content = await client.get(path)
    client.close()
    return json.loads(content) if status == 200 else sys.exit(f"{path}: {status} {content[:200]!r}")


async def add_path(port: int, path: Path) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"path": str(path)}).encode()
    writer.write(post(port, "application/json", len(body), "") + body)
    status, content = await answer(reader)
    writer.close()
    return str(json.loads(content)["id"]) if status == 202 else sys.exit(f"{status} {content[:300]!r}")


def post(port: int, kind: str, length: int, query: str) -> bytes:
    lines = f"POST /v1/slides{query} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
    return "\r\n".join((*lines, f"Content-Type: {kind}", f"Content-Length: {length}", "", "")).encode()


async def wait_done(port: int, slide: str) -> dict[str, Any]:
    while True:
        document = await ask(port, f"/v1/slides/{slide}")
        if document["status"] in ("done", "failed", "cancelled"):
            return dict(document)
        await asyncio.sleep(0.5)


def percentiles(times: list[float]) -> dict[str, float]:
    """In milliseconds."""
    times = sorted(times)
    found = {f"p{q}": times[min(len(times) - 1, len(times) * q // 100)] for q in (50, 90, 95, 99)}
    found |= {"mean": statistics.fmean(times), "max": times[-1]}
    return {key: round(1000 * value, 1) for key, value in found.items()}
