"""``ntrm doctor``: what this machine and this installation offer."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.text import Text

from ntrm.cli.console import Console, command, make_table
from ntrm.core.threads import cores_given
from ntrm.version import __version__

CORE = (
    *("filelock", "imagecodecs", "jinja2", "matplotlib", "numpy", "openslide", "PIL", "pydantic", "rich"),
    *("safetensors", "scipy", "shapely", "tifffile", "torch", "typer", "yaml", "zarr"),
)
"""Modules of the core install, by import name."""

EXTRAS = {
    "serve": ("fastapi", "uvicorn"),
    "cluster": ("ray",),
    "cloud": ("fsspec", "s3fs"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "encoders": ("timm",),
    "mit": ("transformers",),
    "hub": ("huggingface_hub",),
}
"""Optional dependencies and the modules behind them."""

_DISTRIBUTIONS = {"PIL": "pillow", "openslide": "openslide-python openslide-bin", "yaml": "pyyaml"}


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    what: str
    present: bool
    found: str
    hint: str = ""
    needed: bool = True


@command
def doctor(console: Console) -> int:
    """Show what this installation can do: Python, torch, devices, readers, extras.

    Example: ntrm doctor --json
    """
    findings = [*examine()]
    complete = all(finding.present for finding in findings if finding.needed)

    rows = []
    for finding in findings:
        mark = "[green]ok[/]" if finding.present else ("[red]missing[/]" if finding.needed else "[dim]–[/]")
        rows.append((Text.from_markup(mark), finding.what, finding.found, "" if finding.present else finding.hint))
    document = {"version": __version__, "complete": complete, "findings": [asdict(finding) for finding in findings]}
    console.result(document, make_table(f"ntrm {__version__}", ("", "what", "found", "to get it"), rows))
    return int(not complete)


def examine() -> Iterator[Finding]:
    """Check Python, machine, libraries, devices and extras."""
    python = platform.python_version()
    yield Finding("Python", sys.version_info >= (3, 11), python, hint="install Python 3.11 or newer")
    yield Finding("machine", True, f"{platform.system()} {platform.machine()}, {cores_given()} cores")
    for module in CORE:
        version, hint = version_of(module), f"pip install {_DISTRIBUTIONS.get(module, module)}"
        yield Finding(f"library {module}", version is not None, version or "not importable", hint)
    if version_of("torch"):
        yield from _devices()
    for name, modules in EXTRAS.items():
        versions = {module: version_of(module) for module in modules}
        missing = [module for module, version in versions.items() if version is None]
        found = f"missing {', '.join(missing)}" if missing else ", ".join(f"{m} {v}" for m, v in versions.items())
        yield Finding(f"extra {name}", not missing, found, hint=f'pip install "ntrm[{name}]"', needed=False)


def version_of(module: str) -> str | None:
    """Installed version of an importable module, or None where it does not import."""
    try:
        importlib.import_module(module)
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module).split()[0])
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"
    except (ImportError, OSError):  # OSError: a wheel whose shared library does not load here
        return None


def _devices() -> Iterator[Finding]:
    import torch

    yield Finding("device cpu", True, f"{torch.get_num_threads()} threads")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    hint = "an NVIDIA GPU and a CUDA build of torch (optional)"
    yield Finding("device cuda", bool(names), ", ".join(names) or "none", hint, needed=False)
    mps = torch.backends.mps.is_available()
    yield Finding("device mps", mps, "Apple GPU" if mps else "none", "an Apple GPU (optional)", needed=False)
