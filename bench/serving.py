"""`ntrm serve` as the attacks run it: the process, and a large slide to look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

TOKEN = "bench-token-0123456789abcdef"
MPP, TILE = 0.5, 512
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)


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

    def peak_mb(self) -> float:
        """Most memory that the web process had at any time."""
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

    def kill(self) -> None:
        """Without any warning."""
        self.process.kill()
        self.process.wait(timeout=60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
