"""What commands have in common: one result on stdout, everything else on stderr, exit codes, and options."""

from __future__ import annotations

import functools
import inspect
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin

import typer
from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from typer.models import ArgumentInfo, OptionInfo

from ntrm.core.errors import DataError, NtrmError
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import KINDS, SILENT, Progress, make_progress

INTERRUPTED = 130
GOES_ON = "run the same command again to continue from what was finished"
RESUMES = "run the same command again with --resume to continue the training"


def _output(text: str, *flags: str) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel="Output")


@dataclass
class Console:
    """Output of a command: the result on stdout (for people, or JSON with ``--json``), notes and errors on stderr.

    Its fields are the options of every command.
    """

    json: Annotated[bool, _output("Print the result as one JSON document on stdout.", "--json")] = False
    progress_kind: Annotated[str, _output(f"Progress on stderr: {', '.join(KINDS)}.", "--progress")] = "bar"
    quiet: Annotated[bool, _output("Print no notes and no progress bar.", "--quiet", "-q")] = False
    verbose: Annotated[bool, _output("Log more; show tracebacks.", "--verbose", "-v")] = False
    arguments: dict[str, Any] = field(default_factory=dict, init=False)  # The command's own options, by name
    done: dict[str, Any] = field(default_factory=dict, init=False)
    """What was done before an error; with ``--json`` it stands in the document of the error."""
    _written: bool = field(default=False, init=False)

    def given(self, *but: str) -> dict[str, Any]:
        """The options of the command itself as what it calls takes them, by name; without some."""
        return {name: value for name, value in self.arguments.items() if name not in but}

    @property
    def progress(self) -> Progress:
        """Where long work reports how far it is."""
        # --quiet silences what people look at, never the events a program has asked for.
        return SILENT if self.quiet and self.progress_kind == "bar" else make_progress(self.progress_kind)

    def result(self, document: dict[str, Any], *shown: RenderableType) -> None:
        """Print the result once: as JSON if asked for, otherwise what is ``shown`` to people, texts as they are."""
        for each in () if self.json else shown:
            is_text = isinstance(each, str)
            RichConsole(highlight=False).print(each, markup=not is_text, soft_wrap=is_text)
        self._write(document)

    def _write(self, document: dict[str, Any]) -> None:
        # Never a second document, whatever happens after the first.
        if self.json and not self._written:
            self._written = True
            sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """A line for people on stderr; silent with ``--quiet``."""
        if not self.quiet:
            _stderr().print(text, markup=False)

    def failed(self, reason: object, name: str = "") -> None:
        """One of many inputs failed, though the command goes on: a line on stderr, with ``--quiet``, too."""
        named = not name or str(reason).startswith((f"{name}: ", f"{name} ", f"{name}/"))
        _stderr().print(f"error: {reason}" if named else f"error: {name}: {reason}", markup=False)

    def error(self, error: NtrmError) -> None:
        """Show an error: text on stderr, and with ``--json`` also a document on stdout."""
        self._write({"error": error.texts(), **self.done})
        _stderr().print(f"[bold red]error:[/] {escape(str(error))}")
        if self.verbose:
            _stderr().print_exception()

    def interrupted(self, hint: str) -> None:
        """Say that the user has ended the command, and how it goes on."""
        self._write({"error": NtrmError("interrupted", hint=hint).texts(), **self.done})
        self.note(f"interrupted; {hint}")


def prepare_streams() -> None:
    """Print UTF-8 whatever the locale says; what is no character, as in names of broken files, becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def make_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: Collection[str] = ()
) -> Table:
    """A table for people, with the columns of ``right`` aligned to the right; texts are shown as they are."""
    table = Table(title=escape(title), title_justify="left")
    for column in columns:
        table.add_column(escape(column), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _stderr() -> RichConsole:
    return RichConsole(stderr=True, highlight=False, soft_wrap=True)


def described(docstring: str) -> tuple[str, dict[str, tuple[str | None, str]]]:
    r"""The help of a command, a line a paragraph, and metavar and help of its options, from the section ``Args``.

    >>> described("First.\n\n    A second\n    paragraph.\n\n    Args:\n        out (DIR): Where\n            to.")
    ('First.\n\nA second paragraph.', {'out': ('DIR', 'Where to.')})
    """
    text, _, args = inspect.cleandoc(docstring).partition("\n\nArgs:\n")
    found = re.findall(r"^    (\w+)(?: \((.+?)\))?: (.+(?:\n {8}.+)*)", args, re.MULTILINE)
    paragraphs = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return paragraphs, {name: (metavar or None, " ".join(told.split())) for name, metavar, told in found}


def _as_option(parameter: inspect.Parameter, told: tuple[str | None, str] | None) -> inspect.Parameter:
    """A parameter as typer wants it: with its help, and switches that are off without an option that says so again."""
    kind, *more = (
        get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (parameter.annotation,)
    )
    option = next((copy(each) for each in more if isinstance(each, OptionInfo | ArgumentInfo)), typer.Option())
    if told is not None:
        option.metavar, option.help = told
    if kind is bool and parameter.default is False and option.default is ...:  # a name would stand in its place
        option.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    return parameter.replace(annotation=Annotated[kind, option], kind=inspect.Parameter.KEYWORD_ONLY)


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a typed function a command: its docstring is the help, that of its options stands under ``Args``.

    It gets ``--json --progress --quiet -v``, handed over as one ``console``, and errors become exit codes. It returns
    one itself where its result says that inputs failed or faults were found.
    """
    signature = inspect.signature(function, eval_str=True)
    text, told = described(function.__doc__ or "")
    own = [_as_option(each, told.get(name)) for name, each in signature.parameters.items() if name != "console"]
    shared = inspect.signature(Console, eval_str=True).parameters
    parameters = [*own, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shared.values())]

    @functools.wraps(function)
    def wrapper(**arguments: Any) -> None:
        console = Console(**{name: arguments.pop(name) for name in shared})
        console.arguments = arguments
        level = logging.DEBUG if console.verbose else logging.WARNING
        logging.basicConfig(level=level, format="%(levelname)s %(message)s")
        try:
            make_progress(console.progress_kind)
            with terminated_like_interrupted():  # a process that just ends leaves semaphores of its pools behind
                code = function(**arguments, console=console)
        except NtrmError as error:
            console.error(error)
            code = error.exit_code
        except BrokenPipeError:  # whoever reads stdout has gone away; typer ends the command quietly
            raise
        except OSError as error:  # what no module foresaw: no permission, a full disk, a drive that was taken away
            what = f"cannot read or write {error.filename}" if error.filename else "a file cannot be read or written"
            hint = "check the path, its permissions and the free space; -v shows where it happened"
            console.error(DataError(what, got=error.strerror or error, hint=hint))
            code = DataError.exit_code
        except KeyboardInterrupt:
            console.interrupted(RESUMES if arguments.get("resume") is False else GOES_ON)
            code = INTERRUPTED
        if code:
            raise typer.Exit(code)

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__doc__ = text
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
