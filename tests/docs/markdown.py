"""The pages of the documentation: their code blocks, links and headings."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>(?:run|show)[^>]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block of code, with the marker comment before it ("run", "run: exit 1", "show" or nothing)."""

    page: Path
    line: int
    language: str
    marker: str
    text: str

    @property
    def runs(self) -> bool:
        return self.marker.startswith("run")

    @property
    def exit_code(self) -> int:
        stated = re.fullmatch(r"run(?:: exit (\d+))?", self.marker)
        assert stated, f"{self.where}: unknown marker {self.marker!r}"
        return int(stated.group(1) or 0)

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Shell commands: every line of a bash block, the lines after "$ " of a console block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    @property
    def output(self) -> list[str]:
        """What a console block shows besides its commands."""
        lines = self.text.replace("\\\n", " ").splitlines()
        shown = self.language == "console"
        return [line for line in lines if shown and line.strip() and not line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start()) + 1, m["language"], m["marker"] or "", m["text"])
        for m in _BLOCK.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+?)\s*$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(page: Path, header: str) -> list[list[str]]:
    """Cells of the table whose header line starts with ``header``, without its first two lines."""
    rest = page.read_text(encoding="utf-8").partition(f"\n| {header} |")[2]
    assert rest, f"{page.name} has no table that starts with {header!r}"
    lines = rest.splitlines()[2:]
    rows = lines[: next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
