"""``ntrm serve``: the page and the HTTP service; ``ntrm demo``: a tour that ends there."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import suppress
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command
from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import write_text

if TYPE_CHECKING:
    from ntrm.service.core.settings import ServiceSettings

INSTALL = 'pip install "ntrm[serve]"'


@command
def serve(
    console: Console,
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
) -> int:
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
    if not has_service():
        raise RefusedError("the service is not installed", hint=INSTALL)
    from ntrm.service.core.settings import ServiceSettings

    settings = ServiceSettings(
        **console.given("root", "token_file", "open_page"), roots=tuple(root or ()), token=_token(token_file)
    )
    return start_service(settings, console, open_page=open_page)


def has_service() -> bool:
    """Whether the service is installed, on a system that it knows."""
    return hasattr(os, "geteuid") and all(find_spec(module) for module in ("fastapi", "uvicorn"))


def start_service(settings: ServiceSettings, console: Console, *, open_page: bool = True) -> int:
    """Serve until a signal ends it, and say where."""
    from ntrm.service.serve import quiet_logs
    from ntrm.service.serve import serve as run

    if not settings.is_loopback:
        console.note(
            f"WARNING: {settings.host} can be reached from other machines, and nothing is encrypted: put a TLS proxy "
            "in front, see docs/serve.md"
        )
    quiet_logs(console.verbose)
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    page = settings.hidden / "open.html"

    def opened(address: str, link: str) -> None:
        console.result({"address": address, "link": link}, f"{address}{link}")
        console.note("the link works once, within 15 minutes; Ctrl-C ends the service")
        if open_page and has_screen and not console.json:
            # Other users see the arguments of a browser: what lets one in stands in a page of only this user.
            refresh = f'<meta http-equiv="refresh" content="0;url={escape(address + link)}">'
            with suppress(DataError):  # on a full disk the link is only printed
                write_text(page, f"<!doctype html>{refresh}\n", private=True)
                webbrowser.open(page.absolute().as_uri())

    try:
        return run(settings, opened)
    finally:
        with suppress(OSError):
            page.unlink()


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


@command
def demo(
    console: Console, out: Path = Path("demo"), jobs: options.Jobs = options.JOBS, serve: bool | None = None
) -> int:
    """Draw synthetic sections, check them, segment them with the bundled model, and show the results.

    In a terminal, the viewer starts at the end and its link is printed; Ctrl-C ends it.

    Example: ntrm demo --out demo

    Args:
        out (DIR): Folder for the files of the tour.
        serve: Show the slides in the browser at the end.

    """
    from ntrm.cli.tour import DATASET, FOREIGN, RESULTS, tour

    document, told = tour(out, jobs=jobs, progress=console.progress, note=console.note)
    console.result(document, *told)
    results, roots = out / RESULTS, (out / DATASET, out / FOREIGN)
    if serve is None:
        serve = sys.stdin.isatty() and sys.stdout.isatty()
    if serve and not console.json and has_service():
        from ntrm.service.core.settings import ServiceSettings

        settings = ServiceSettings(out=results, roots=roots, port=0)
        return start_service(settings, console)
    how = INSTALL + ", then " if serve and not console.json else ""
    console.note(f"the viewer:  {how}ntrm serve {results} --root {roots[0]} --root {roots[1]}")
    return 0
