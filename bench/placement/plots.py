"""Line charts as SVG, written by hand: a panel per scenario, a line per rule, whiskers for 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from bench.placement.stats import Change

# Distinct for colour-blind readers too (Okabe and Ito), and with a shape each.
_COLOURS = {"topogate": "#0072b2", "kueue": "#d55e00", "kai": "#009e73", "volcano": "#a34d82", "capacity": "#57606a"}
_OTHER = "#8c6d1f"
# Outlines of marks around the point that the path has moved to.
_MARKS = {
    "topogate": "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z",
    "kueue": "m-3 -3h6v6h-6z",
    "kai": "m0 -4l3.8 6.8h-7.6z",
    "volcano": "m0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
}
_OTHER_MARK = "m-1.5 -3.5h3v7h-3z"
_WIDTH, _HEIGHT = 230, 200  # of a panel's plot
_LEFT, _TOP, _GAP = 64, 94, 62
_MARGIN = 20
_INK, _GREY, _FAINT = "#1f2328", "#57606a", "#d0d7de"


@dataclass(frozen=True, slots=True)
class Panel:
    """Per rule the points (x, mean and interval of y), x ascending."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, Change]]]


def chart(title: str, panels: Sequence[Panel], *, x: str, y: str, percent: bool = False) -> str:
    """The SVG of panels side by side, each with its own scale of y, which starts at zero unless `percent`."""
    width = _LEFT + len(panels) * (_WIDTH + _GAP) - _GAP + 24
    height = _TOP + _HEIGHT + 52
    rules = list(dict.fromkeys(rule for panel in panels for rule in panel.lines))
    # A label takes some 7 units a letter.
    places = accumulate((58 + 7 * len(rule) for rule in rules), initial=_MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-labelledby="t" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<title id="t">{escape(title)}</title>',
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" fill="#ffffff" stroke="#8c959f"/>',
        f'<text x="{_MARGIN}" y="26" font-size="15" font-weight="bold" fill="{_INK}">{escape(title)}</text>',
        *(_legend(rule, place) for rule, place in zip(rules, places, strict=False)),
    ]
    for i, panel in enumerate(panels):
        parts += _panel(panel, _LEFT + i * (_WIDTH + _GAP), rules, percent=percent)
    parts.append(f'<text x="{width / 2:g}" y="{height - 12}" text-anchor="middle" fill="{_GREY}">{escape(x)}</text>')
    middle = _TOP + _HEIGHT / 2
    parts.append(
        f'<text x="16" y="{middle:g}" text-anchor="middle" fill="{_GREY}" '
        f'transform="rotate(-90 16 {middle:g})">{escape(y)}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _legend(rule: str, x: int) -> str:
    colour = _COLOURS.get(rule, _OTHER)
    return (
        f'<path d="M{x} 48h22" stroke="{colour}" stroke-width="2.5"{_dash(rule)}/>'
        f'<path d="M{x + 11} 48{_MARKS.get(rule, _OTHER_MARK)}" fill="{colour}"/>'
        f'<text x="{x + 28}" y="52" fill="{_INK}">{escape(rule)}</text>'
    )


def _panel(panel: Panel, left: int, rules: Sequence[str], *, percent: bool) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    xs = sorted({x for x, _ in points})
    ends = [end for _, change in points for end in (change.low, change.high) if math.isfinite(end)]
    ends += [change.mean for _, change in points]
    low, high, step = _axis(0.0 if not percent else min(ends), min(1.0, max(ends)) if percent else max(ends))

    def across(x: float) -> float:
        span = xs[-1] - xs[0]
        return left + 14 + (_WIDTH - 28) * ((x - xs[0]) / span if span else 0.5)

    def down(y: float) -> float:
        return _TOP + _HEIGHT * (1 - (min(max(y, low), high) - low) / (high - low))

    parts = [
        f'<text x="{left}" y="{_TOP - 8}" font-weight="bold" fill="{_INK}">{escape(panel.title)}</text>',
    ]
    for i in range(round((high - low) / step) + 1):
        value = low + i * step
        label = f"{value:.0%}" if percent else f"{value:g}" if step < 1 else f"{value:,.0f}"
        parts.append(f'<path d="M{left} {down(value):.1f}h{_WIDTH}" stroke="{_FAINT}"/>')
        parts.append(f'<text x="{left - 6}" y="{down(value) + 4:.1f}" text-anchor="end" fill="{_GREY}">{label}</text>')
    for x in xs:
        parts.append(
            f'<text x="{across(x):.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle" fill="{_GREY}">{x:g}</text>'
        )
    # The last drawn is on top: the first rule, which the chart is about.
    for at, rule in reversed(list(enumerate(rules))):
        colour, aside = _COLOURS.get(rule, _OTHER), 2.5 * (at - (len(rules) - 1) / 2)
        spots = [(across(x) + aside, change) for x, change in panel.lines.get(rule, ())]
        path = "L".join(f"{x:.1f} {down(change.mean):.1f}" for x, change in spots)
        if not spots:
            continue
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{_dash(rule)}/>')
        for x, change in spots:
            if math.isfinite(change.half):
                ends_of = f"M{x:.1f} {down(change.low):.1f}V{down(change.high):.1f}"
                parts.append(f'<path d="{ends_of}" stroke="{colour}" stroke-width="1.2"/>')
            mark = _MARKS.get(rule, _OTHER_MARK)
            parts.append(f'<path d="M{x:.1f} {down(change.mean):.1f}{mark}" fill="{colour}"/>')
    return parts


def _axis(low: float, high: float) -> tuple[float, float, float]:
    """Round ends and a round step, for some five lines."""
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    start = math.floor(low / step + 1e-9) * step
    return start, max(math.ceil(high / step - 1e-9) * step, start + step), step


def _dash(rule: str) -> str:
    return ' stroke-dasharray="5 4"' if rule == "capacity" else ""
