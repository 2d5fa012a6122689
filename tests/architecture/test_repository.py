"""The repository beside the code: links are valid, and no file mentions a developer's machine."""

import re
from pathlib import Path

from support.repository.sources import ROOT, shown, tracked

LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
IMAGE = re.compile(r"(?:src|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SOMEBODYS_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/\w+|(?<![\w.])/root/")
REGISTRIES = re.compile(
    r"files\.pythonhosted\.org|pypi\.org/simple|repo\d*\.maven|registry\.npmjs|proxy\.golang|index-url|GOPROXY=http"
)
THIS_FILE = Path(__file__).resolve()


def pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub generates for a page's headings."""
    text = FENCE.sub("", page.read_text())
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {word.replace(" ", "-") for word in words}


def test_links_lead_somewhere() -> None:
    broken = []
    for page in pages():
        text = FENCE.sub("", page.read_text())
        for link in LINK.findall(text) + IMAGE.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name) if name else page
            if not target.exists():
                broken.append(f"{shown(page)}: {link}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                broken.append(f"{shown(page)}: {link} (no such heading)")
    assert not broken, "\n".join(broken)


def test_the_documentation_lists_every_page() -> None:
    listed = (ROOT / "docs" / "README.md").read_text()
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name})" not in listed]
    assert not [name for name in missing if name != "README.md"]


def test_nothing_tells_where_it_was_written() -> None:
    own = [str(path) for path in (ROOT, Path.home()) if len(str(path)) > len("/home/")]
    found = []
    for path in tracked():
        if path == THIS_FILE:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if SOMEBODYS_HOME.search(line) or REGISTRIES.search(line) or any(each in line for each in own):
                found.append(f"{shown(path)}:{number} {line.strip()[:120]}")
    assert not found, "\n".join(found)
