"""``ntrm serve``: the page and the HTTP service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ntrm.cli.common import Batch, Device
from ntrm.cli.console import Console, command
from ntrm.core.errors import DataError, RefusedError

if TYPE_CHECKING:
    from ntrm.service.core.settings import ServiceSettings

Out = Annotated[Path, typer.Argument(metavar="[OUT]", help="Folder of the results; those that are there are shown.")]
Model = Annotated[str, typer.Option("--model", metavar="M", help="Model folder, hub id or bundled.")]
Host = Annotated[str, typer.Option("--host", metavar="H", help="Address to listen on; others than this machine: TLS!")]
Port = Annotated[int, typer.Option("--port", metavar="P", min=0, max=65_535, help="Port; 0 takes a free one.")]
Root = Annotated[
    list[Path] | None, typer.Option("--root", metavar="DIR", help="Slides below may be named by path; repeatable.")
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="F", help="Token for programs; or the variable NTRM_TOKEN.")
]
PublicUrl = Annotated[
    str | None, typer.Option("--public-url", metavar="URL", help="How a proxy in front calls the service.")
]
Days = Annotated[
    float | None, typer.Option("--retention-days", metavar="N", min=0, help="Delete slides sent here after N days.")
]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]


@command
def serve(
    out: Out = Path("ntrm-results"),
    model: Model = "bundled",
    host: Host = "127.0.0.1",
    port: Port = 8765,
    root: Root = None,
    token_file: TokenFile = None,
    public_url: PublicUrl = None,
    retention_days: Days = None,
    open_page: Open = True,
    device: Device = "auto",
    batch: Batch = 16,
    *,
    console: Console,
) -> None:
    """Look at slides and their results in a browser, and segment new ones. For research, not for diagnosis.

    Prints a link that opens the page once. Programs send the token (NTRM_TOKEN or --token-file) as a bearer.

    Example: ntrm serve results --root slides
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RefusedError("the service is not installed", got=error, hint='pip install "ntrm[serve]"') from error
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
        retention_days=retention_days,
    )
    start(settings, console, open_page=open_page)


def start(settings: ServiceSettings, console: Console, *, open_page: bool) -> None:
    """Serve until a signal ends it, and say where."""
    from ntrm.service.serve import quiet_logs
    from ntrm.service.serve import serve as run

    if not settings.is_loopback:
        console.note(
            f"WARNING: {settings.host} can be reached from other machines, and nothing is encrypted: put a TLS proxy "
            "in front, see docs/serve.md"
        )
    quiet_logs(console.verbose)

    def opened(address: str, link: str) -> None:
        console.result({"address": address, "link": link}, lambda to: to.print(f"{address}{link}", soft_wrap=True))
        console.note("the link works once, within 15 minutes; Ctrl-C ends the service")
        if open_page and not console.json:
            _show(f"{address}{link}")

    code = run(settings, opened)
    if code:
        raise typer.Exit(code)


def _token(path: Path | None) -> str | None:
    # No longer in the environment from here on: whatever is started later inherits it.
    token = os.environ.pop("NTRM_TOKEN", None)
    if path is None:
        return token or None
    try:
        if path.stat().st_mode & 0o077:
            raise RefusedError("others can read the token", got=path, hint=f"chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "cannot read the token", got=error, hint="write it into a file of your own, mode 600"
        ) from error


def _show(address: str) -> None:
    """In a browser, where this machine has a screen."""
    import webbrowser

    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)
