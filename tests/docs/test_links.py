"""Links lead somewhere, tables are whole, every command and option that the pages mention exists, the site has all."""

import re
import runpy
import shlex

import pytest
import typer
import yaml
from tests.docs.markdown import PAGES, ROOT, anchors, blocks, prose

import ntrm
from ntrm.cli.main import app

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@pages
def test_relative_links_and_pictures_exist(page):
    broken = [target for target in links(page) if not leads_somewhere(page, target)]
    assert broken == []


def links(page):
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(([^)\s]+)[^)]*\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def leads_somewhere(page, target):
    path, _, anchor = target.partition("#")
    goal = (page.parent / path).resolve() if path else page
    inside = goal.is_relative_to(ROOT) and goal.exists()
    return inside and (not anchor or anchor in anchors(goal))


@pages
def test_paths_of_the_repository_exist(page):
    # What stands in a command counts, too; a pattern has to match something.
    code = [*re.findall(r"`([^`\n]+)`", prose(page)), *(block.text for block in blocks(page))]
    named = {path for text in code for path in re.findall(r"(?<![\w./-])(?:bench|research|src|tests)/[\w./*-]+", text)}
    assert [path for path in sorted(named) if not any(ROOT.glob(path.rstrip("./")))] == []


@pages
def test_tables_are_whole(page):
    for rows in re.findall(r"(?:^ *\|.*\n?)+", prose(page), re.M):
        header, rule, *body = rows.splitlines()
        assert re.fullmatch(r" *\|( *:?-+:? *\|)+", rule), f"a table without a head, or cut in two: {header}"
        cells = {len(re.findall(r"\|", re.sub(r"`[^`]*`|\\\|", "", row))) for row in (header, *body)}
        assert len(cells) == 1, f"rows of different lengths below {header}"
        assert body


def test_the_index_leads_to_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert {page for page in PAGES if page.parent == index.parent} - {index} <= linked
    assert {page for page in PAGES if page.parent.name == "decisions"} <= linked


@pages
def test_every_command_and_option_exists(page):
    wrong = [f"{command}: {why}" for command in commands(page) if (why := complaint(command))]
    assert wrong == []


def commands(page):
    """Everything that starts with ``ntrm``: in shell blocks, and in code inside sentences."""
    shell = [c for block in blocks(page) if block.language in {"bash", "console", ""} for c in block.commands]
    spans = re.findall(r"`(ntrm [^`\n]+)`", prose(page))
    # After -m, or what srun starts; elsewhere ntrm is a word like others, such as the name of a network.
    launched = [re.sub(r"^(?:(?:torchrun|python3?) .*?-m|srun.*?)\s+ntrm ", "ntrm ", c.strip()) for c in shell]
    return [text for text in launched + spans if re.match(r"ntrm(\s|$)", text)]


def complaint(text):
    """Why the command cannot be typed, or the empty string."""
    words = shlex.split(re.split(r"\s(?:[|>&;]|&&|2>)", text, maxsplit=1)[0], comments=True)[1:]
    command = typer.main.get_command(app)
    while (parts := getattr(command, "commands", {})) and words and not words[0].startswith(("-", "…")):
        name = words.pop(0)
        if name not in parts:
            return f"no command {name!r}"
        command = parts[name]
    options = [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
    known = {"--help", "-h", *options}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"no option {', '.join(unknown)}" if unknown else ""


def test_no_page_tells_of_machine_paths():
    told = [page.name for page in PAGES if re.search(r"(?<![\w.])/(work|home|root|tmp)/|\.\./shared", page.read_text())]
    assert told == []


class Plain(yaml.SafeLoader):
    """Reads mkdocs.yml without the site generator, whose tags become nothing."""


Plain.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def pages_of(entry):
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages_of(part)]


def test_the_site_has_every_page_once_and_all_that_is_public():
    docs = ROOT / "docs"
    named = pages_of(yaml.load((ROOT / "mkdocs.yml").read_text(), Plain)["nav"])
    assert sorted(named) == sorted(["api.md", *(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))])
    directives = re.findall(r"^::: (\S+)$", runpy.run_path(str(docs / "prepare_site.py"))["api_page"](), re.M)
    assert {f"ntrm.{name}" for name in ntrm.__all__ if not name.startswith("_")} <= set(directives)
