"""What a reader would stumble over: words that leave the page or lie on each other."""

import itertools

from matplotlib.text import Text


def shown_texts(figure):
    """Upright texts that can be read, with their boxes in pixels; ticks beyond an axis' limits are not drawn."""
    figure.draw_without_rendering()
    drawn = {id(label) for axes in figure.axes for label in _ticks(axes)}
    every_tick = {
        id(label) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in axis.findobj(Text)
    }
    named = {id(axis.label) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)}
    hidden = every_tick - drawn - named
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    renderer = figure.canvas.get_renderer()
    # The box of a slanted text is larger than the text: slanted neighbours are left out.
    upright = [text for text in texts if id(text) not in hidden and text.get_rotation() % 90 == 0]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in upright]


def words(figure):
    """The texts alone."""
    return [text for text, _ in shown_texts(figure)]


def _ticks(axes):
    if not axes.axison:
        return
    for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
        for tick in axis.get_major_ticks():
            if low <= tick.get_loc() <= high:
                yield tick.label1


def stumbles(figure):
    """Pairs of texts whose boxes overlap by more than a pixel, and texts that leave the page."""
    texts = shown_texts(figure)
    pairs = [(a, b) for (a, one), (b, two) in itertools.combinations(texts, 2) if _overlap(one, two)]
    width, height = figure.get_size_inches() * figure.dpi
    return pairs + [text for text, box in texts if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]


def _overlap(one, two):
    wide = min(one.x1, two.x1) - max(one.x0, two.x0)
    high = min(one.y1, two.y1) - max(one.y0, two.y0)
    return wide > 1 and high > 1


def pictures(figure):
    """The arrays shown, axes by axes in the order they were made."""
    return [image.get_array() for axes in figure.axes for image in axes.images]
