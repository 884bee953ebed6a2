"""``ntrm serve``: the page and the HTTP service; ``ntrm demo``: a tour that ends there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command
from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import write_text

if TYPE_CHECKING:
    from ntrm.cli.tour import TourResult
    from ntrm.service.core.settings import ServiceSettings

INSTALL = 'pip install "ntrm[serve]"'


@command
def serve(
    out: Annotated[Path, typer.Argument()] = Path("ntrm-results"),
    model: options.Model = "bundled",
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8765,
    root: list[Path] | None = None,
    token_file: Path | None = None,
    public_url: str | None = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open")] = True,
    device: options.Device = "auto",
    batch: options.Batch = 16,
    *,
    console: Console,
) -> None:
    """View slides and their results in a browser, and segment new ones. For research, not for diagnosis.

    Prints a link that works once. Programs send the token (NTRM_TOKEN or --token-file) as a bearer token.

    Example: ntrm serve results --root slides

    Args:
        out ([OUT]): Folder of the results; existing ones are shown.
        host (H): Address to listen on; use TLS if other machines can reach it.
        port (P): Port; 0 takes a free one.
        root (DIR): Folder of slides that may be opened by path; may be repeated.
        token_file (F): File with the token for programs; or set NTRM_TOKEN.
        public_url (URL): Address of the service as seen from outside, behind a proxy.
        open_page: Open the page in a browser.

    """
    if not hasattr(os, "geteuid"):
        hint = "every other command works here; for the service use Linux, macOS or WSL"
        raise UsageError("the service needs a POSIX system", got=sys.platform, hint=hint)
    missing = _missing()
    if missing is not None:
        raise RefusedError("the service is not installed", got=missing, hint=INSTALL)
    from ntrm.service.core.settings import ServiceSettings

    settings = ServiceSettings(
        out=out,
        model=model,
        device=device,
        batch=batch,
        roots=tuple(root or ()),
        host=host,
        port=port,
        public_url=public_url,
        token=_token(token_file),
    )
    _start(settings, console, open_page=open_page)


def _missing() -> ImportError | None:
    """What the service needs and is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        return error
    return None


def _start(
    settings: ServiceSettings, console: Console, *, open_page: bool, before: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Serve until a signal ends it, and say where; what was done ``before`` stands in the same document."""
    from ntrm.service.serve import quiet_logs
    from ntrm.service.serve import serve as run

    if not settings.is_loopback:
        console.note(
            f"WARNING: {settings.host} can be reached from other machines, and nothing is encrypted: put a TLS proxy "
            "in front, see docs/serve.md"
        )
    quiet_logs(console.verbose)

    def opened(address: str, link: str) -> None:
        document = {**before, "address": address, "link": link}
        console.result(document, f"{address}{link}")
        console.note("the link works once, within 15 minutes; Ctrl-C ends the service")
        if open_page and not console.json:
            _show(f"{address}{link}", page)

    page = settings.hidden / "open.html"
    try:
        code = run(settings, opened)
    finally:
        with suppress(OSError):
            page.unlink()
    if code:
        raise typer.Exit(code)


def _token(path: Path | None) -> str | None:
    # No longer in the environment from here on: whatever is started later inherits it.
    token = os.environ.pop("NTRM_TOKEN", None)
    if path is None:
        return token or None
    try:
        if path.stat().st_mode & 0o077:
            raise RefusedError("other users can read the token", got=path, hint=f"chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "cannot read the token", got=error, hint="write it into a file of your own, mode 600"
        ) from error


def _show(address: str, page: Path) -> None:
    """In a browser, where this machine has a screen.

    Other users see the arguments of a browser: what lets one in stands in a ``page`` that only this user can read.
    """
    import webbrowser

    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        refresh = f'<meta http-equiv="refresh" content="0;url={escape(address)}">'
        # On a full disk the link is only printed.
        with suppress(DataError):
            write_text(page, f"<!doctype html>{refresh}\n", private=True)
            webbrowser.open(page.absolute().as_uri())


@command
def demo(
    out: Path = Path("demo"), jobs: options.Jobs = options.JOBS, serve: bool | None = None, *, console: Console
) -> None:
    """Draw synthetic sections, check them, segment them with the bundled model, and show the results.

    In a terminal, the viewer starts at the end and its link is printed; Ctrl-C ends it.

    Example: ntrm demo --out demo

    Args:
        out (DIR): Folder for the files of the tour.
        serve: Show the slides in the browser at the end.

    """
    from ntrm.cli.tour import tour

    result = tour(out, jobs=jobs, progress=console.progress, note=console.note)
    if serve is None:
        serve = not console.json and sys.stdin.isatty() and sys.stdout.isatty()
    serves = serve and not result.faults and _missing() is None
    if not (serves and console.json):
        console.result(result.as_dict(), *_told(result))
    if result.faults:
        raise typer.Exit(1)
    if serves:
        from ntrm.service.core.settings import ServiceSettings

        settings = ServiceSettings(out=result.results, roots=(result.dataset, result.foreign), port=0)
        _start(settings, console, open_page=True, before=result.as_dict())
    elif serve:
        console.note(f"the viewer:  {INSTALL}, then ntrm serve")
    else:
        console.note(f"the viewer:  ntrm serve {result.results} --root {result.dataset} --root {result.foreign}")


def _told(result: TourResult) -> Iterator[str]:
    """What came of the tour, for people."""
    from ntrm.results.paths import INDEX

    yield f"{result.sections} sections drawn and checked, {result.faults} faults found."
    yield f"bundled model on {result.scored} of them: mean IoU {result.iou:.3f}"
    yield f"the dataset: {result.page.resolve().as_uri()}"
    yield f"the slides:  {(result.results / INDEX).resolve().as_uri()}"
    if result.attention:
        yield "what the network attended to: in the viewer, Relations, Attention"
    if result.mistake is not None:
        yield f"{result.mistake.slide_id}: a section made to look like another laboratory's"
        yield from result.mistake.sentences()
