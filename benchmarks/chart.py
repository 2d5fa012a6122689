"""The chart of the README, drawn as SVG by hand from a results value. Readable in light and in dark."""

import math
from typing import Any
from xml.sax.saxutils import escape

WIDTH = 860
LABEL = 268  # bars begin here
BAR_SPACE = 300
ROW = 34
BAR = 18
HEAD = 62
PANEL_HEAD = 40
FOOT = 46

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-size: 17px; font-weight: 600 } .panel { font-weight: 600 } .small { font-size: 11.5px; fill: #57606a }
.value { font-weight: 600 } .ours { fill: #1f6feb } .behind { fill: #9a6700 } .kafka { fill: #d0d7de }
.line { stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 3 3 } .range { stroke: #24292f; stroke-width: 1.2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .ours { fill: #4493f8 } .behind { fill: #d29922 }
  .kafka { fill: #3d444d } .line { stroke: #9198a1 } .range { stroke: #e6edf3 }
}
"""

PANELS = (("higher", "More is better"), ("lower", "Less is better"))


def draw(results: dict[str, Any]) -> str:
    """The whole chart; measures without a ratio (no Apache Kafka in the run) are left out."""
    rows = [row for row in results["measures"] if row.get("shown", True) and math.isfinite(row.get("ratio", math.nan))]
    parts: list[str] = []
    y = HEAD
    for better, title in PANELS:
        panel = [row for row in rows if row["better"] == better]
        if panel:
            parts.append(_panel(panel, title, y))
            y += PANEL_HEAD + ROW * len(panel)
    height = y + FOOT
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-label="{escape(_title(results))}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="16" y="28">{escape(_title(results))}</text>',
            f'<text class="small" x="16" y="48">{escape(_subtitle(results))}</text>',
            *parts,
            f'<text class="small" x="16" y="{height - 18}">{escape(_footer(results))}</text>',
            "</svg>\n",
        )
    )


def _panel(rows: list[dict[str, Any]], title: str, top: float) -> str:
    widest = max(1.0, *(row[key] for row in rows for key in ("ratio", "ratio_most") if math.isfinite(row[key])))
    scale = BAR_SPACE / widest
    one = LABEL + scale
    bottom = top + PANEL_HEAD + ROW * len(rows) - 8
    lines = [
        f'<text class="panel" x="16" y="{top + 24}">{escape(title)}</text>',
        f'<text class="small" x="{one:.1f}" y="{top + 24}" text-anchor="middle">1.0</text>',
    ]
    lines += [_bar(row, scale, top + PANEL_HEAD + ROW * number) for number, row in enumerate(rows)]
    lines.append(f'<line class="line" x1="{one:.1f}" x2="{one:.1f}" y1="{top + 30}" y2="{bottom}"/>')
    return "\n".join(lines)


def _bar(row: dict[str, Any], scale: float, top: float) -> str:
    value = row["ratio"]
    ahead = value >= 1 if row["better"] == "higher" else value <= 1
    length = max(2.0, value * scale)
    middle = top + BAR / 2 + 4.5
    least, most = (LABEL + min(row[key] * scale, BAR_SPACE) for key in ("ratio_least", "ratio_most"))
    after = LABEL + max(length, scale, most - LABEL) + 10
    figures = f"{number(row['ours']['median'])} vs {number(row['theirs']['median'])} {row['unit']}"
    return "\n".join(
        (
            f'<text x="{LABEL - 10}" y="{middle}" text-anchor="end">{escape(row["title"])}</text>',
            f'<rect class="kafka" x="{LABEL}" y="{top}" width="{scale:.1f}" height="{BAR}" rx="2"/>',
            f'<rect class="{"ours" if ahead else "behind"}" x="{LABEL}" y="{top + 3}" width="{length:.1f}"'
            f' height="{BAR - 6}" rx="2"/>',
            f'<line class="range" x1="{least:.1f}" x2="{most:.1f}" y1="{top + BAR / 2}" y2="{top + BAR / 2}"/>',
            f'<text x="{after:.1f}" y="{middle}"><tspan class="value">{value:.2f} ×</tspan>'
            f'<tspan class="small" dx="8">{escape(figures)}</tspan></text>',
        )
    )


def number(value: float) -> str:
    """A figure with three significant digits, thousands and millions shortened: 1.23 M, 456 k, 0.071."""
    for limit, suffix in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if suffix == ' M' else 1e3):.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _title(results: dict[str, Any]) -> str:
    return f"{results['ours']} against {results['theirs']} (grey = 1.0)"


def _subtitle(results: dict[str, Any]) -> str:
    return f"Ratios of medians over {results['rounds']} alternating rounds; the thin line is the range of the rounds."


def _footer(results: dict[str, Any]) -> str:
    machine = results["machine"]
    return (
        f"{results['date'][:10]} · {machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, shared with"
        f" the load generators · Python {machine['python']} · Java {machine['java']}"
    )
