"""The site of `make docs`: its navigation names every page, and its pages have no link that leads nowhere."""

import importlib.util
import re

import pytest
import yaml
from tests.docs.markdown import ROOT

DOCS = ROOT / "docs"


class Plain(yaml.SafeLoader):
    """Reads mkdocs.yml without the site generator, whose tags become nothing."""


Plain.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def pages_of(entry):
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages_of(part)]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("prepare_site", DOCS / "prepare_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_names_every_page_once():
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Plain)
    named = pages_of(config["nav"])
    assert sorted(named) == sorted(["api.md", *(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))])


def test_the_api_page_has_everything_that_is_public(site):
    import ntrm

    directives = re.findall(r"^::: (\S+)$", site.api_page(), re.M)
    assert {f"ntrm.{name}" for name in ntrm.__all__ if not name.startswith("_")} <= set(directives)
