import re

import pytest
from tests.reproduction.synthetic import read, tiny_plan, write_all
from tests.reproduction.test_tables import facts

from ntrm.data.split import open_parts
from ntrm.data.stats import dataset_stats
from ntrm.reproduction import tables
from ntrm.reproduction.assemble import Material
from ntrm.reproduction.claims import claims_table
from ntrm.reproduction.figures import Drawn, draw_ablation, draw_dataset, draw_resolutions
from ntrm.reproduction.page import lead, write_results_page


@pytest.fixture
def material(tmp_path, random, stripes):
    plan = tiny_plan(levels=("10x", "5x"), seeds=(0,))
    write_all(tmp_path / "runs", plan, random, sections=8, skip={plan.jobs[0].key})
    results = read(tmp_path / "runs", plan, {plan.jobs[0].key: "exit code 1\nout of <memory>"})
    known = {level: facts(level) for level in ("10x", "5x")}
    made = [tables.table_1(results), tables.ablation_table(results), tables.table_2(results, known)]
    made += [claims_table(results, known), tables.runs_table(results)]
    stats = dataset_stats(open_parts(stripes, level="10x").whole, tile=64)
    drawn = [
        draw_dataset(stats, tmp_path),
        draw_resolutions(results, known, tmp_path),
        draw_ablation(made[1], tmp_path),
    ]
    by_name = {figure.name: figure for figure in drawn}
    return Material(results, known, stats, {table.name: table for table in made}, by_name)


def test_the_page(material, tmp_path):
    # One test: to gather what a page shows takes long.
    path = tmp_path / "index.html"
    write_results_page(path, material, ["ntrm", "reproduce", "--out", "a b"])
    text = path.read_text()
    check_the_page_is_whole_and_needs_nothing_beside_it(text, material)
    check_the_first_line_says_that_it_is_a_phantom(text, material)
    check_failures_are_shown_with_their_last_words_escaped(text, material)
    material.tables["differences"] = tables.differences_table(material.results)
    write_results_page(path, material, [])
    check_numbers_have_one_kind_of_minus(path.read_text())


def check_the_page_is_whole_and_needs_nothing_beside_it(text, material):
    assert text.count("data:image/png;base64") == 3
    assert "src=" in text
    assert 'src="http' not in text
    assert "ntrm reproduce --out &#x27;a b&#x27;" in text
    for table in material.tables.values():
        assert f"<h3>{table.title.replace(chr(39), '&#x27;')}</h3>" in text
    assert text.index("<h2>What was run") < text.index("<h2>The systems compared") < text.index("<h2>Runs")
    # Nothing was drawn from a network here, so that section is left out instead of standing empty.
    assert "<h2>The network" not in text


def check_the_first_line_says_that_it_is_a_phantom(text, material):
    assert lead(material.facts).startswith("These are results on a phantom")
    assert "on a phantom" in text.partition("<section>")[0]


def check_failures_are_shown_with_their_last_words_escaped(text, material):
    assert "out of &lt;memory&gt;" in text
    assert material.results.failed[0].job.label in text
    assert ">failed<" in text


def check_numbers_have_one_kind_of_minus(text):
    words = re.sub("<[^>]*>", " ", text.partition("<body")[2])
    assert "−" in words
    assert not re.findall(r"(?:^|[\s(])-[0-9][^\s]*", words)


def test_every_figure_that_the_paper_has_stands_beside_our_words_for_it(tmp_path):
    for name in ("pipeline", "architecture", "trm", "qualitative", "improvement", "resolutions"):
        assert Drawn(name, tmp_path, "").paper.startswith("The paper")
    assert Drawn("ablation", tmp_path, "").paper == "The paper has no ablation."
    assert Drawn("dataset", tmp_path, "").paper == ""


def test_figures_without_enough_to_show_are_left_out(tmp_path, random):
    plan = tiny_plan(levels=("10x",), seeds=(0,))
    results = read(tmp_path, plan)
    assert draw_resolutions(results, {"10x": facts("10x")}, tmp_path) is None
    assert draw_ablation(tables.ablation_table(results), tmp_path) is None
