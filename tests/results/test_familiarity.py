import pytest
from tests.segment.judged import KNOWN, SMALL, STRANGE, WHY

from ntrm.results.familiarity import UNFAMILIAR, WITHOUT_REFERENCE, Familiarity, SlideFamiliarity


def test_a_warning_has_the_p_value_and_every_reason():
    assert STRANGE.warning == f"unlike what the model knows (p = 0.002): {WHY}; darker than any"
    assert Familiarity(UNFAMILIAR, 0.00999, {}, ()).warning == "unlike what the model knows (p = 0.01)"
    assert {each.warning for each in (KNOWN, SMALL, WITHOUT_REFERENCE)} == {""}


def test_what_was_not_judged_has_a_note_and_nothing_else_has():
    assert SMALL.note == f"familiarity: too small to judge: {SMALL.reasons[0]}"
    assert WITHOUT_REFERENCE.note.startswith("familiarity: no reference: ")
    assert (KNOWN.note, STRANGE.note) == ("", "")


@pytest.mark.parametrize(
    ("slide", "pieces", "assessed", "warnings"),
    [
        (KNOWN, {}, [True, True], ()),
        (KNOWN, {1: KNOWN, 2: STRANGE}, [True, False], (f"piece 2: {STRANGE.warning}",)),
        (STRANGE, {}, [False, False], (STRANGE.warning,)),
        (STRANGE, {1: KNOWN, 2: STRANGE}, [False, False], (STRANGE.warning,)),
        (SMALL, {1: SMALL}, [True, True], ()),
    ],
)
def test_an_unfamiliar_slide_rules_over_its_pieces(slide, pieces, assessed, warnings):
    judged = SlideFamiliarity(slide, pieces)
    assert [judged.ruling(number).assessed for number in (1, 2)] == assessed
    assert judged.warnings == warnings
    assert judged.of_piece(1) == pieces.get(1, slide)
