"""Tables of the documentation that repeat what the code says are compared with it."""

import re
import tomllib
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.docs.markdown import ROOT, table
from tests.evaluation.small import ByColour, draw_sections, write_dataset
from tests.report.segmented import made

from ntrm.core.csv_text import read_rows
from ntrm.core.labels import CANCERS, SKIN, Tissue
from ntrm.data.augment import Augment
from ntrm.data.faults import KINDS
from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.result import FILES, section_row
from ntrm.paper.plan import FACTORS
from ntrm.paper.published import SYSTEMS
from ntrm.regions import cancers
from ntrm.results.tables import COLUMNS as COLUMNS_OF_TABLES
from ntrm.slides.quality.checks import FLAGGED
from ntrm.training import recipe

DATA = ROOT / "docs" / "data.md"
TRAIN = ROOT / "docs" / "train.md"
EVALUATE = ROOT / "docs" / "evaluate.md"
REPRODUCE = ROOT / "docs" / "reproduce.md"
SEGMENTED = ROOT / "docs" / "tables.md"
DEPENDENCIES = ROOT / "docs" / "decisions" / "0002-dependencies.md"


def test_the_fault_table_says_what_the_check_says():
    wanted = [[f"`{code}`", kind.title, kind.expected, kind.hint] for code, kind in KINDS.items()]
    assert table(DATA, "code") == wanted


def test_the_label_table_is_the_schema():
    read = [
        Tissue(int(index), name.strip("`"), title, tuple(int(channel) for channel in rgb.split()))
        for index, name, title, rgb in table(DATA, "index")
    ]
    assert tuple(read) == SKIN.tissues


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


def shown(value):
    """A value of a recipe as its table has it."""
    if isinstance(value, list | tuple):
        return " to ".join(shown(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else value if isinstance(value, str) else f"{value:g}"


RECIPES = {name: recipe.load_recipe(name) for name in recipe.RECIPES}


def test_the_recipe_table_says_what_the_recipes_say():
    rows = table(TRAIN, "field")
    told = [cells[:-1] for cells in rows]
    fields = [field for field in recipe.FIELDS if field not in ("name", "augment")]
    assert told == [[f"`{field}`", *(shown(getattr(each, field)) for each in RECIPES.values())] for field in fields]
    meanings = {cells[0].strip("`"): cells[-1] for cells in rows}
    for field, kind in get_type_hints(recipe.Recipe).items():
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        missing = [choice for choice in choices if f"`{choice}`" not in meanings[field]]
        assert missing == [], f"{field} does not tell of these choices"
    assert [cells[0].strip("`") for cells in table(TRAIN, "recipe")] == list(recipe.RECIPES)


def test_the_augmentation_table_says_what_the_recipes_say():
    told = [cells[:-1] for cells in table(TRAIN, "augmentation")]
    made = [each.augmentation for each in RECIPES.values()]
    names = Augment.__dataclass_fields__
    assert told == [[f"`{name}`", *(shown(getattr(each, name)) for each in made)] for name in names]


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    data = write_dataset(folder / "data", draw_sections(np.random.default_rng(0), (64, 64)))
    return evaluate(ByColour(), data, None, device="cpu")


def test_the_evaluation_tables_list_keys_columns_and_files(evaluation):
    assert [cells[0].strip("`") for cells in table(EVALUATE, "key")] == list(evaluation.as_dict())
    columns = list(section_row(evaluation.sections[0], evaluation.schema))
    assert [cells[0].strip("`") for cells in table(EVALUATE, "column")] == columns
    assert [cells[0].strip("`") for cells in table(EVALUATE, "file")] == list(FILES)
    counts = next(iter(evaluation.as_dict()["interfaces"].values()))
    assert {cells[0].strip("`") for cells in table(EVALUATE, "count")} == counts.keys()


def test_the_constants_of_the_cancer_rule_are_those_of_the_code():
    told = {cells[0].strip("`"): float(cells[1]) for cells in table(EVALUATE, "constant")}
    assert told == {name: getattr(cancers, name) for name in told}
    constants = {name for name, value in vars(cancers).items() if name.isupper() and isinstance(value, float)}
    assert told.keys() == constants - {"NEST_UM", "CONFIRMED"}


def test_the_reproduction_page_lists_factors_and_systems():
    assert table(REPRODUCE, "factor") == [[factor.name, factor.meaning] for factor in FACTORS]
    sentence = re.search(r"The six systems are (.+?)\. ", REPRODUCE.read_text(), re.S)
    assert sentence
    assert tuple(re.findall(r"`([\w-]+)`", sentence[1])) == SYSTEMS


CORRECTED = {"slides": {"corrected_…"}, "regions": {"corrected_by_hand", "corrected_followed"}}
"""Columns that tables have only where a person corrected something."""


@pytest.mark.parametrize("name", COLUMNS_OF_TABLES)
def test_every_column_of_a_segmented_slide_is_told_in_its_order(name):
    cells = [each[0] for each in table(SEGMENTED, f"column of `{name}.csv`")]
    told = [column for cell in cells for column in re.findall(r"`([^`]+)`", cell)]
    with (made() / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        head = next(read_rows(stream, strip=False))
    assert [column for column in told if column not in CORRECTED.get(name, ())] == [*dict.fromkeys(map(kind, head))]
    assert CORRECTED.get(name, set()) <= {*told}


def kind(column):
    """The name by which the page tells of a column; one of every class, cancer or fault."""
    for pattern, cells in {
        rf"cancer_({'|'.join(CANCERS)})": "cancer_CANCER",
        rf"quality_({'|'.join(FLAGGED)})": "quality_FAULT",
        r"fraction_\w+": "fraction_TISSUE",
    }.items():
        column = re.sub(rf"^{pattern}(?=_confidence$|_score$|$)", cells, column)
    return re.sub(r"^area_\w+_mm2$", "area_TISSUE_mm2", column)


def test_the_faults_of_a_slide_have_the_thresholds_of_the_code():
    assert {cells[0].strip("`"): float(cells[2]) for cells in table(SEGMENTED, "fault")} == FLAGGED
