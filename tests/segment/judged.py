"""Slides whose familiarity a test decides."""

from ntrm.results.familiarity import FAMILIAR, TOO_SMALL, UNFAMILIAR, Familiarity, SlideFamiliarity
from ntrm.segment import slide as one_slide

WHY = "SCC borders on KER over 3.1 mm; in training never more than 0.2"
STRANGE = Familiarity(UNFAMILIAR, 0.002, {"colours": 0.4, "texture": 0.03, "anatomy": 0.002}, (WHY, "darker than any"))
KNOWN = Familiarity(FAMILIAR, 0.61, {"colours": 0.7, "texture": 0.61, "anatomy": 0.9}, ())
SMALL = Familiarity(TOO_SMALL, None, {}, ("0.2 mm² of tissue, and at least 1 is needed",))


def judge_as(monkeypatch, slide, pieces=None, windows=()):
    """Have every slide judged like this from now on; pieces by number, else like their slide."""
    judged = SlideFamiliarity(slide, pieces or {}, tuple(windows))
    monkeypatch.setattr(one_slide, "_judged", lambda *_: judged)
