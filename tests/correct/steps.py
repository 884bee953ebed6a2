"""Random logs of a small mask."""

import numpy as np
from hypothesis import strategies as st

from ntrm.correct.log import Log, MaskRecord, Step
from ntrm.correct.pixels import PixelSet

CLASSES = ("EPI", "RET", "BKG")
SHAPE = (4, 6)
SIZE = 24

tissues = st.sampled_from(CLASSES)


def record(**changes):
    about = {"slide_id": "a", "mask": "0" * 64, "height": SHAPE[0], "width": SHAPE[1], "classes": CLASSES}
    return MaskRecord(**(about | changes))


def texts(among=range(SIZE)):
    """Pixels as text; of those ``among`` only."""
    every = np.arange(SIZE)
    return st.sets(st.sampled_from(sorted(among))).map(
        lambda inside: PixelSet.of_window(np.isin(every, sorted(inside))[None], 0, 0, SIZE).text
    )


@st.composite
def steps(draw):
    """One step; what follows to different tissues does not overlap."""
    half = draw(st.sampled_from([(), (0,), (0, 1)]))
    areas = {name: {*range(k * 12, k * 12 + 12)} for k, name in enumerate(draw(st.permutations(CLASSES))[:2])}
    followed = {name: draw(texts(areas[name])) for k, name in enumerate(areas) if k in half}
    return Step(
        action=draw(st.sampled_from(["name", "draw"])),
        tissue=draw(tissues),
        named=draw(texts()),
        followed=followed,
        regions=draw(st.integers(0, 3)),
    )


@st.composite
def logs(draw):
    """Steps, undos and redos, as far as there is something to undo or redo."""
    done, undone, found = 0, 0, []
    for number in range(1, draw(st.integers(0, 8)) + 1):
        choices = ["step", *(["undo"] if done else []), *(["redo"] if undone else [])]
        what = draw(st.sampled_from(choices))
        if what == "step":
            step, done, undone = draw(steps()), done + 1, 0
        else:
            change = 1 if what == "redo" else -1
            step, done, undone = Step(action=what), done + change, undone - change
        found.append(Step(**{**vars(step), "number": number}))
    return Log(record() if found else None, tuple(found))
