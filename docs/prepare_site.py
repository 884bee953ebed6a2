"""The pages for `make docs`: docs/ with a home page and the Python API, without links that lead out of the site.

`python docs/prepare_site.py OUT` writes them; the site generator of mkdocs.yml reads them from there.
"""

import ast
import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "ntrm"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
MARKER = re.compile(r"^<!-- (?:run|show)[^>]*-->\n+", re.M)


def write_site_pages(out: Path) -> None:
    """Fill the folder ``out``, which is emptied first, with every file of docs/ and the page ``api.md``."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).as_posix()
        text = path.read_text(encoding="utf-8")
        (out / name).write_text(site_page(name, home_page(text) if name == "README.md" else text), encoding="utf-8")
    (out / "api.md").write_text(api_page(), encoding="utf-8")


def home_page(text: str) -> str:
    """The introduction of the repository's README, and then the list of pages."""
    introduction = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Documentation")[0]
    return introduction.replace("](docs/", "](") + text.replace("# Documentation", "## Documentation", 1)


def site_page(name: str, text: str) -> str:
    """A page without the comments for the tests; a link to a file outside docs/ becomes plain text."""

    def inside(link: re.Match[str]) -> str:
        words, target = link.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target.partition("#")[0]))
        leads_out = path.startswith("..") or not (DOCS / path).exists()
        return words if leads_out and not re.match(r"[a-z]+:", target) and not target.startswith("#") else link[0]

    return LINK.sub(inside, MARKER.sub("", text))


def api_page() -> str:
    """Everything that ``ntrm`` and its packages export, and what the pages import beside that."""
    modules = {"ntrm": exported(PACKAGE / "__init__.py")}
    modules |= {f"ntrm.{init.parent.name}": exported(init) for init in sorted(PACKAGE.glob("*/__init__.py"))}
    for module, name in imported():
        if name not in modules.setdefault(module, []):
            modules[module].append(name)
    lines = ["# Python API", "", "The public functions and classes, from their docstrings.", ""]
    for module, names in modules.items():
        lines += [f"## `{module}`", "", *(f"::: {module}.{name}\n" for name in names)] if names else []
    return "\n".join(lines)


def exported(init: Path) -> list[str]:
    """Public names, those of ``__all__`` and those imported as themselves, read without importing anything."""
    tree = ast.parse(init.read_text(encoding="utf-8"))
    imported = (alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names)
    named = {alias.name for alias in imported if alias.name == alias.asname}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            named |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return sorted(name for name in named if not name.startswith("_"))


def imported() -> list[tuple[str, str]]:
    """Module and name of every ``from ntrm… import …`` in the Python examples of the pages."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md")))
    lines = re.findall(r"^from (ntrm[\w.]*) import ([\w, ]+)$", text, re.M)
    return sorted({(module, name.strip()) for module, names in lines for name in names.split(",")})


if __name__ == "__main__":
    write_site_pages(Path(sys.argv[1]))
