"""docs/files.md: every file under src/moldau with the first line of its docstring. Print it with `make docs`."""

import ast
from pathlib import Path

from support.repository.sources import PACKAGE, SOURCES, parsed

HEAD = """# Files

Everything under `src/moldau`, with the first line of each file's docstring.
`make docs` makes this page; a test keeps it up to date.
[ARCHITECTURE.md](../ARCHITECTURE.md) says how the folders belong together.
"""


def first_line(path: Path) -> str:
    """The first paragraph of the docstring, as one line."""
    text = ast.get_docstring(parsed(path)) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def render() -> str:
    folders: dict[Path, list[Path]] = {}
    for path in sorted(SOURCES):
        folders.setdefault(path.parent, []).append(path)
    parts = [HEAD]
    for folder, files in sorted(folders.items()):
        name = str(folder.relative_to(PACKAGE.parent))
        parts.append(f"\n## {name}\n")
        parts += [f"\n{first_line(path)}\n" for path in files if path.name == "__init__.py"]
        rows = [path for path in files if path.name != "__init__.py"]
        if rows:
            parts.append("\n| File | What it is |\n|---|---|\n")
            parts += [f"| `{path.name}` | {first_line(path)} |\n" for path in rows]
    return "".join(parts)


if __name__ == "__main__":
    print(render(), end="")
