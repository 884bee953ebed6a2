"""Tables of the documentation that repeat what the code says are compared with it."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.docs.markdown import ROOT, table

from ntrm.data.cases import Case
from ntrm.data.faults import KINDS
from ntrm.data.stats import DatasetStats, count_mask
from ntrm.labels import SKIN, Tissue

DATA = ROOT / "docs" / "data.md"
DEPENDENCIES = ROOT / "docs" / "decisions" / "0002-dependencies.md"


def test_the_fault_table_says_what_the_check_says():
    wanted = [[f"`{code}`", kind.title, kind.expected, kind.mend] for code, kind in KINDS.items()]
    assert table(DATA, "code") == wanted


def test_notes_are_told_from_faults():
    sentence = re.search(r"Notes, not faults: (.+?)\.", DATA.read_text(), re.S)
    assert sentence
    assert re.findall(r"`([a-z-]+)`", sentence[1]) == [code for code, kind in KINDS.items() if kind.severity == "note"]


def test_the_label_table_is_the_schema():
    read = [
        Tissue(int(index), name.strip("`"), title, tuple(int(channel) for channel in rgb.split()))
        for index, name, title, rgb in table(DATA, "index")
    ]
    assert tuple(read) == SKIN.tissues


def test_the_statistics_table_lists_the_keys_of_the_document(random):
    mask = random.integers(0, len(SKIN), (8, 8))
    case = Case("a", image=None, mask=None, group="a")
    document = DatasetStats(SKIN, count_mask(mask, len(SKIN)), tile=256, cases=(case,)).as_dict()
    assert [cells[0].strip("`") for cells in table(DATA, "key")] == list(document)


def test_every_dependency_is_explained_with_its_pinned_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    core = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    told = {canonicalize_name(cells[0]): cells[1] for cells in table(DEPENDENCIES, "library")}
    assert told == {name: pins[name] for name in core}
    extras = {cells[0].strip("`"): cells[1] for cells in table(DEPENDENCIES, "extra")}
    wanted = {
        extra: ", ".join(f"{Requirement(t).name} {pins[canonicalize_name(Requirement(t).name)]}" for t in texts)
        for extra, texts in project["optional-dependencies"].items()
    }
    assert extras == wanted
