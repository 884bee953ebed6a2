"""``ntrm doctor``: what this machine and this installation offer."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import typer
from rich.text import Text

from ntrm.cli.console import Console, command, make_table
from ntrm.core.threads import cores_given
from ntrm.version import __version__

CORE = (
    *("filelock", "imagecodecs", "jinja2", "matplotlib", "numpy", "openslide", "PIL", "pydantic", "rich"),
    *("safetensors", "scipy", "shapely", "tifffile", "torch", "typer", "yaml", "zarr"),
)
"""Modules of the core install, by import name."""

MAY_LACK = {
    "imagecodecs": "compressed TIFF other than deflate and what Pillow decodes",
    "jinja2": "HTML pages: reports of slides and datasets, the page of ntrm reproduce",
    "openslide": "scanner files (SVS, NDPI, MRXS, SCN, DICOM)",
    "shapely": "polygons: importing annotations, exporting regions",
    "zarr": "OME-Zarr: labels.zarr and probabilities.zarr",
}
"""Core modules without which training and evaluation still run, and what is lost with them."""

EXTRAS = {
    "serve": ("fastapi", "uvicorn"),
    "cluster": ("ray",),
    "cloud": ("fsspec", "s3fs"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "encoders": ("timm",),
    "mit": ("transformers",),
    "hub": ("huggingface_hub",),
    "tensorboard": ("tensorboardX",),
}
"""Optional dependencies and the modules behind them."""

_DISTRIBUTIONS = {"PIL": "pillow", "openslide": "openslide-python", "yaml": "pyyaml"}


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    what: str
    present: bool
    found: str
    hint: str = ""
    needed: bool = True


@command
def doctor(*, console: Console) -> None:
    """Show what this installation can do: Python, torch, devices, readers, extras.

    Example: ntrm doctor --json
    """
    findings = examine()
    complete = all(finding.present for finding in findings if finding.needed)

    rows = []
    for finding in findings:
        mark = "[green]ok[/]" if finding.present else ("[red]missing[/]" if finding.needed else "[dim]–[/]")
        rows.append((Text.from_markup(mark), finding.what, finding.found, "" if finding.present else finding.hint))
    document = {"version": __version__, "complete": complete, "findings": [asdict(finding) for finding in findings]}
    console.result(document, make_table(f"ntrm {__version__}", ("", "what", "found", "to get it"), rows))
    if not complete:
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Check Python, machine, libraries, devices, readers and extras."""
    extras = (_extra(name, modules) for name, modules in EXTRAS.items())
    return [*_system(), *map(_module, CORE), _openslide_library(), *_devices(), *extras]


def version_of(module: str) -> str | None:
    """Installed version of an importable module, or None where it does not import."""
    try:
        importlib.import_module(module)
    except (ImportError, OSError):  # OSError: a wheel whose shared library does not load here
        return None
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"


def _system() -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding("Python", sys.version_info >= (3, 11), version, hint="install Python 3.11 or newer")
    yield Finding("machine", True, f"{platform.system()} {platform.machine()}, {cores_given()} cores")


def _module(name: str) -> Finding:
    version = version_of(name)
    lost = MAY_LACK.get(name, "")
    hint = f"pip install {_DISTRIBUTIONS.get(name, name)}" + (f" (without it: no {lost})" if lost else "")
    return Finding(f"library {name}", version is not None, version or "not importable", hint=hint)


def _openslide_library() -> Finding:
    try:
        import openslide
    except (ImportError, OSError) as error:
        return Finding("OpenSlide library", False, str(error).splitlines()[0], hint="pip install openslide-bin")
    return Finding("OpenSlide library", True, str(openslide.__library_version__))


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError):
        return
    yield Finding("device cpu", True, f"{torch.get_num_threads()} threads")
    cuda, hint = torch.cuda.is_available(), "an NVIDIA GPU and a CUDA build of torch (optional)"
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) if cuda else "none"
    yield Finding("device cuda", cuda, names, hint, needed=False)
    mps = torch.backends.mps.is_available()
    yield Finding("device mps", mps, "Apple GPU" if mps else "none", "an Apple GPU (optional)", needed=False)


def _extra(name: str, modules: tuple[str, ...]) -> Finding:
    versions = {module: version_of(module) for module in modules}
    missing = [module for module, version in versions.items() if version is None]
    found = f"missing {', '.join(missing)}" if missing else ", ".join(f"{m} {v}" for m, v in versions.items())
    return Finding(f"extra {name}", not missing, found, hint=f'pip install "ntrm[{name}]"', needed=False)
