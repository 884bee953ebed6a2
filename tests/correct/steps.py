"""Random logs of a small mask."""

from hypothesis import strategies as st

from ntrm.correct.log import Log, MaskRecord, Step

CLASSES = ("EPI", "RET", "BKG")
SHAPE = (4, 6)
SIZE = 24

tissues = st.sampled_from(CLASSES)


def record(**changes):
    about = {"slide_id": "a", "mask": "0" * 64, "height": SHAPE[0], "width": SHAPE[1], "classes": CLASSES}
    return MaskRecord(**(about | changes))


@st.composite
def texts(draw, among=None):
    """Pixels as text; of those ``among`` only."""
    inside = draw(st.sets(st.sampled_from(sorted(among))) if among else st.sets(st.integers(0, SIZE - 1)))
    parts, at = [], 0
    for pixel in sorted(inside):
        if pixel == at and parts:
            parts[-1][1] += 1
        else:
            parts.append([pixel - at, 1])
        at = pixel + 1
    return " ".join(f"{skip}+{take}" for skip, take in parts)


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
