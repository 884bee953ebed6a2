import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
from lxml import html
from tests.paper.synthetic import read, tiny_plan, write_all
from tests.paper.test_result_tables import facts
from tests.report.pages import HOSTILE, cells, check_safe, words

from ntrm.data.split import open_splits
from ntrm.data.stats import dataset_stats
from ntrm.paper import result_tables
from ntrm.paper.claims import claims_table
from ntrm.paper.figures import draw_ablation, draw_dataset, draw_learning, draw_resolutions
from ntrm.paper.learning import learning_table
from ntrm.paper.reproduce import PHANTOM, write_results_page


@pytest.fixture
def material(tmp_path, random, stripes):
    plan = tiny_plan(levels=("10x", "5x"), seeds=(0,))
    write_all(tmp_path / "runs", plan, random, sections=8, skip={plan.jobs[0].key})
    results = read(tmp_path / "runs", plan, {plan.jobs[0].key: "exit code 1\nout of <memory>"})
    known = {level: facts(level) for level in ("10x", "5x")}
    made = [
        result_tables.table_1(results),
        result_tables.ablation_table(results),
        learning_table(results),
        result_tables.table_2(results, known),
    ]
    made += [claims_table(results, known), result_tables.runs_table(results)]
    stats = dataset_stats(open_splits(stripes, resolution="10x").dataset, tile=64)
    drawn = [
        draw_dataset(stats, tmp_path),
        draw_learning(results, tmp_path),
        draw_resolutions(results, known, tmp_path),
        draw_ablation(made[1], tmp_path),
    ]
    by_name = {figure.name: figure for figure in drawn}
    tables = {table.name: table for table in made}
    return SimpleNamespace(results=results, facts=known, stats=stats, tables=tables, figure_files=by_name)


def test_the_page(material, tmp_path):
    # One test: to gather what a page shows takes long.
    path = tmp_path / "index.html"
    material.tables["runs"] = replace(material.tables["runs"], title=HOSTILE, note=HOSTILE)
    write_results_page(path, **vars(material), command=["ntrm", "reproduce", "--out", f"a b {HOSTILE}"])
    text = path.read_text(encoding="utf-8")
    check_the_page_is_whole_and_needs_nothing_beside_it(text, material)
    check_names_and_last_words_stay_texts(text, material)
    check_sentences_may_break_and_numbers_stand_to_the_right(text)
    material.tables["differences"] = result_tables.differences_table(material.results)
    write_results_page(path, **vars(material), command=[])
    check_numbers_have_one_kind_of_minus(path.read_text(encoding="utf-8"))


def check_the_page_is_whole_and_needs_nothing_beside_it(text, material):
    page = html.fromstring(text)
    assert len(page.xpath("//img")) == 4
    assert all(source.startswith("data:image/png;base64") for source in page.xpath("//@src"))
    assert page.xpath("//a") == []
    assert [title.text for title in page.iter("h3")] == [
        material.tables[name].title for name in ("table1", "learning", "table2", "claims", "ablation", "runs")
    ]
    # Nothing was drawn from a network here, so that section is left out instead of standing empty.
    assert [title.text for title in page.iter("h2")] == [
        *("What was run", "The systems compared", "Resolutions", "Claims", "Ablation", "The dataset", "Runs")
    ]
    assert page.xpath("//p[@class='lead']")[0].text == PHANTOM


def check_names_and_last_words_stay_texts(text, material):
    page = check_safe(text)
    assert shlex.join(["ntrm", "reproduce", "--out", f"a b {HOSTILE}"]) in page.texts
    assert page.texts.count(HOSTILE) == 2
    label = material.results.lacking[0].job.label
    assert cells(text, label) == [["failed", "exit code 1 out of <memory>"]]


def check_sentences_may_break_and_numbers_stand_to_the_right(text):
    page = html.fromstring(text)
    sentences = {words(each) for each in page.find_class("words")}
    assert all(len(each) > 32 for each in sentences)
    assert page.xpath("//th[text()='paper: Dice' and @class='n']")
    assert not page.xpath("//th[text()='verdict' and @class='n']")


def check_numbers_have_one_kind_of_minus(text):
    said = words(html.fromstring(text).find("body"))
    assert "−" in said
    assert not re.findall(r"(?:^|[\s(])-[0-9][^\s]*", said)
