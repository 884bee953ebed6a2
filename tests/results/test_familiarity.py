import pytest
from tests.segment.judged import KNOWN, SMALL, STRANGE

from ntrm.results.familiarity import SlideFamiliarity


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
