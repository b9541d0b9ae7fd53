"""Charts as SVG for papers and slides: lines with intervals over numbers, or points with intervals over categories."""

import math
from collections.abc import Callable, Sequence

from heedful.html import Html, make_ticks, tag
from heedful.lab.outcome import Chart, Estimate

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, BOTTOM, TITLE_HEIGHT, KEY_HEIGHT = 70, 20, 60, 30, 20
PLOT_WIDTH = WIDTH - LEFT - RIGHT
FONTS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
COLORS = ("#0072b2", "#d55e00", "#00795a", "#a8458c", "#8a6100", "#444444")  # with contrast, also for the color-blind
DASHES = ("none", "6 3", "2 3", "8 3 2 3", "12 4", "1 4")
INK, QUIET, GRID = "#1c2024", "#60646c", "#dcdfe4"
MAX_VALUE_TICKS = 8  # x values that are their own ticks
LETTER_WIDTH, LINE_HEIGHT = 7.0, 14
Scale = Callable[[float], float]


def draw_svg(chart: Chart) -> str:
    """The chart as a file of its own, on white."""
    keys = place_keys([series.name for series in chart.series])
    top = TITLE_HEIGHT + KEY_HEIGHT * (1 + max(row for row, _ in keys)) + 10
    height = HEIGHT + top - TITLE_HEIGHT - KEY_HEIGHT
    plot_height = height - top - BOTTOM
    estimates = [estimate for series in chart.series for _, estimate in series.points]
    categories = list_categories(chart)
    y_scale, y_ticks = make_y_scale(chart, estimates, top, plot_height)
    x_scale, x_ticks = make_x_scale(chart, categories)
    shapes = [
        tag("rect", width=WIDTH, height=height, fill="#ffffff"),
        tag("text", chart.title, x=LEFT, y=20, font_weight="bold", fill=INK),
    ]
    for tick in y_ticks:
        y = round(y_scale(tick), 1)
        shapes += [
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke=GRID),
            tag("text", format_tick(tick), x=LEFT - 8, y=y + 4, text_anchor="end", fill=QUIET),
        ]
    for value, label in x_ticks:
        x = round(x_scale(value), 1)
        for row, line in enumerate(split_label(label, PLOT_WIDTH / len(x_ticks))):
            y = top + plot_height + 18 + LINE_HEIGHT * row
            shapes.append(tag("text", line, x=x, y=y, text_anchor="middle", fill=QUIET))
    middle = top + plot_height / 2
    shapes += [
        tag("text", chart.x_label, x=LEFT + PLOT_WIDTH / 2, y=height - 10, text_anchor="middle", fill=INK),
        tag(
            "text", chart.y_label, x=16, y=middle, text_anchor="middle", fill=INK, transform=f"rotate(-90 16 {middle})"
        ),
    ]
    for index, (series, (row, left)) in enumerate(zip(chart.series, keys, strict=True)):
        color, dash = COLORS[index % len(COLORS)], DASHES[index % len(DASHES)]
        y = TITLE_HEIGHT + KEY_HEIGHT * row + 8
        shapes += [
            tag("line", x1=left, x2=left + 22, y1=y, y2=y, stroke=color, stroke_width=2, stroke_dasharray=dash),
            tag("text", series.name, x=left + 28, y=y + 4, fill=INK),
        ]
        aside = 10 * (index - (len(chart.series) - 1) / 2) if categories else 0.0
        points = [
            (x_scale(categories.index(x) if isinstance(x, str) else x) + aside, estimate)
            for x, estimate in series.points
        ]
        shapes += draw_points(series.name, points, y_scale, color, dash if not categories else None)
    body = "\n".join(shapes)
    label = f"{chart.title}: {chart.y_label} over {chart.x_label}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="{FONTS}" font-size="12" role="img">\n{tag("title", label)}\n{body}\n</svg>\n'
    )


def place_keys(names: Sequence[str]) -> list[tuple[int, float]]:
    """The row and the left edge of every name of the legend."""
    places, row, left = [], 0, float(LEFT)
    for name in names:
        width = 50 + LETTER_WIDTH * len(name)
        if left > LEFT and left + width > WIDTH:
            row, left = row + 1, float(LEFT)
        places.append((row, left))
        left += width
    return places


def split_label(label: str, width: float) -> list[str]:
    """The label of a tick in one line, or in two if it is wider than `width` and has a space."""
    spaces = [at for at, letter in enumerate(label) if letter == " "]
    if not spaces or LETTER_WIDTH * len(label) <= width:
        return [label]
    middle = min(spaces, key=lambda at: abs(at - len(label) / 2))
    return [label[:middle], label[middle + 1 :]]


def list_categories(chart: Chart) -> list[str]:
    """The categories of the axis in order; none if it has numbers."""
    return list(dict.fromkeys(x for series in chart.series for x, _ in series.points if isinstance(x, str)))


def make_y_scale(
    chart: Chart, estimates: Sequence[Estimate], top: float, plot_height: float
) -> tuple[Scale, list[float]]:
    """From values to pixels, and the ticks."""
    finite = [bound for each in estimates for bound in (each.value, each.low, each.high) if math.isfinite(bound)]
    if chart.log_y:
        powers = [math.log10(value) for value in finite if value > 0]
        first, last = math.floor(min(powers) + 1e-9), math.ceil(max(powers) - 1e-9)
        last = max(last, first + 1)
        ticks = [10.0**power for power in range(first, last + 1)]
        return lambda value: top + plot_height * (last - math.log10(max(value, ticks[0]))) / (last - first), ticks
    low, high = min(0.0, *finite), max(0.0, *finite)
    high = high if high > low else low + 1.0
    margin = 0.04 * (high - low)
    low, high = (low - margin if low < 0 else low), (high + margin if high > 0 else high)
    return lambda value: top + plot_height * (high - value) / (high - low), make_ticks(low, high, 6)


def make_x_scale(chart: Chart, categories: Sequence[str]) -> tuple[Scale, list[tuple[float, str]]]:
    """From values (of categories: their numbers) to pixels, and the ticks with their labels."""
    if categories:
        part = PLOT_WIDTH / len(categories)
        return lambda index: LEFT + part * (index + 0.5), [(float(at), name) for at, name in enumerate(categories)]
    values = sorted({float(x) for series in chart.series for x, _ in series.points})
    change: Scale = math.log10 if chart.log_x else float
    low, high = change(values[0]), change(values[-1])
    span, inset = (high - low) or 1.0, 14
    ticks = values if len(values) <= MAX_VALUE_TICKS else make_ticks(values[0], values[-1], 6)
    if chart.log_x and len(values) > MAX_VALUE_TICKS:
        ticks = values[:: math.ceil(len(values) / MAX_VALUE_TICKS)]
    return (
        lambda value: LEFT + inset + (PLOT_WIDTH - 2 * inset) * (change(value) - low) / span,
        [(tick, format_tick(tick)) for tick in ticks],
    )


def draw_points(
    name: str, points: Sequence[tuple[float, Estimate]], y_scale: Scale, color: str, dash: str | None
) -> list[Html]:
    """Dots with intervals, and the line between them unless `dash` is None; values that are not finite are left out."""
    places = [(round(x, 1), estimate) for x, estimate in points if math.isfinite(estimate.value)]
    shapes: list[Html] = []
    if dash is not None and len(places) > 1:
        path = " ".join(f"{x},{round(y_scale(estimate.value), 1)}" for x, estimate in places)
        shapes.append(tag("polyline", points=path, fill="none", stroke=color, stroke_width=2, stroke_dasharray=dash))
    for x, estimate in places:
        low, high, y = (round(y_scale(value), 1) for value in (estimate.low, estimate.high, estimate.value))
        shapes.append(tag("line", x1=x, x2=x, y1=low, y2=high, stroke=color, stroke_width=1.5))
        shapes.append(tag("circle", tag("title", f"{name}: {estimate}"), cx=x, cy=y, r=3.5, fill=color))
    return shapes


def format_tick(value: float) -> str:
    return f"{value:,.6g}" if 1e-4 <= abs(value) < 1e7 or value == 0 else f"{value:.0e}"
