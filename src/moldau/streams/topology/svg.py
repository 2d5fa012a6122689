"""A topology as a picture (SVG): topics, operators and the records between them, from left to right."""

from html import escape
from typing import Final

from moldau.streams.topology.describe import detail
from moldau.streams.topology.nodes import Node, Sink, Source, Topology, is_stateful

WIDTH, HEIGHT = 190, 46  # of a box
GAP_X, GAP_Y, MARGIN = 46, 18, 16
TITLE, ABOUT = 26, 32  # characters that fit into a box
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#1c2733}.detail{font-size:10px;fill:#52606d}"
    "rect{rx:6;stroke:#7b8794;fill:#ffffff}.topic{fill:#e3f2ef;stroke:#2a7f6f}.state{fill:#fdf3dc;stroke:#b7791f}"
    "path{fill:none;stroke:#7b8794;stroke-width:1.4}"
)


def draw(topology: Topology) -> str:
    places = _places(topology)
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    height = max(y for _, y in places.values()) + HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(topology.name)}</title><style>{STYLE}</style>",
        '<rect width="100%" height="100%" style="fill:#f8fafb;stroke:none"/>',
        '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<polygon points="0 0, 8 4, 0 8" fill="#7b8794"/></marker></defs>',
    ]
    for node in topology.nodes:
        parts += [_arrow(places[parent], places[node]) for parent in node.parents]
    parts += [_box(node, *places[node]) for node in topology.nodes]
    return "\n".join([*parts, "</svg>", ""])


def _places(topology: Topology) -> dict[Node, tuple[int, int]]:
    """Each node one column behind its last parent, and in the first free row from that of its first parent on."""
    columns: dict[Node, int] = {}
    rows: dict[Node, int] = {}
    taken: set[tuple[int, int]] = set()
    for node in topology.nodes:
        column = max((columns[parent] + 1 for parent in node.parents), default=0)
        row = rows[node.parents[0]] if node.parents else 0
        while (column, row) in taken:
            row += 1
        columns[node], rows[node] = column, row
        taken.add((column, row))
    return {
        node: (MARGIN + columns[node] * (WIDTH + GAP_X), MARGIN + rows[node] * (HEIGHT + GAP_Y))
        for node in topology.nodes
    }


def _box(node: Node, x: int, y: int) -> str:
    kind = "topic" if isinstance(node, Source | Sink) else "state" if is_stateful(node) else "step"
    title = node.topic if isinstance(node, Source | Sink) else node.name
    about = node.name if isinstance(node, Source | Sink) else detail(node)
    return (
        f'<g><rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>'
        f'<text x="{x + 10}" y="{y + 19}">{escape(_short(title, TITLE))}</text>'
        f'<text class="detail" x="{x + 10}" y="{y + 35}">{escape(_short(about, ABOUT))}</text></g>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + WIDTH, start[1] + HEIGHT // 2
    x2, y2 = end[0] - 2, end[1] + HEIGHT // 2
    bend = GAP_X // 2
    return f'<path d="M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}" marker-end="url(#end)"/>'


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
