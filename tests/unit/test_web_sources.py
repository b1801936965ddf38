"""Rules that the pages' formatter and linter lack: long comments and texts, and which part may import which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import normpath
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
SUFFIXES = {".ts", ".tsx", ".mjs", ".css"}
IMPORT = re.compile(r"""(?:from|import|import\(|URL\()\s*"(\.[^"]+)\"""")
#: The parts that a part may import beside itself; a page imports no other page.
BELOW = {
    "lib": {"kinds.ts"},
    "timeline": {"lib"},
    "density": {"lib"},
    "graph": set(),
    "logs": {"lib", "ui"},
    "kinds.ts": set(),
    "ui": {"lib", "kinds.ts"},
    "pages": {"lib", "ui", "timeline", "density", "graph", "logs", "kinds.ts"},
}


def sources(*folders: str) -> list[Path]:
    files = [path for folder in folders for path in (WEB / folder).rglob("*")]
    return [path for path in files if path.suffix in SUFFIXES and path.name != "schema.d.ts"]


def test_no_line_is_longer_than_120_characters() -> None:
    files = sources("src", "test", "scripts")
    long = [
        f"{path.relative_to(WEB)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert len(files) > 100 and long == []


def room(path: str) -> tuple[str, str]:
    """The part of web/src that a file belongs to, and the page if the part is `pages`."""
    part, _, rest = path.partition("/")
    return part, rest.partition("/")[0] if part == "pages" else ""


def imports(name: str, text: str) -> Iterator[str]:
    for target in IMPORT.findall(text):
        yield normpath(f"{name}/../{target}")


def strays(name: str, text: str) -> list[str]:
    """Imports of one source that its part must not have."""
    part, page = room(name)
    wrong = []
    for target in imports(name, text):
        there, other = room(target if target != "kinds" else "kinds.ts")
        if (there, other) != (part, page) and there not in BELOW[part]:
            wrong.append(f"{name} imports {target}")
    return wrong


def test_parts_import_only_what_lies_below_them() -> None:
    names = {str(path.relative_to(WEB / "src")): path for path in sources("src")}
    assert [wrong for name, path in names.items() for wrong in strays(name, path.read_text())] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lib/live.ts", 'import { Page } from "../ui/page";'),
        ("ui/form.tsx", 'const part = import("../pages/cluster/app");'),
        ("density/flat.ts", 'import type { Grid } from "../pages/collatz/model/layers";'),
        ("pages/threads/app.tsx", 'import { Tree } from "../cluster/result";'),
        ("pages/collatz/model/run.ts", 'import { open } from "../../cluster/model/state";'),
    ],
)
def test_an_import_against_the_order_is_seen(name: str, text: str) -> None:
    assert strays(name, text)


#: Where a kind's name is at home. A timeline has threads, whatever it is of.
OWN = {"thread": ("pages/threads/", "timeline/"), "collatz": ("pages/collatz/",)}
#: Kinds whose name is also a word of these pages: a source names one where it compares with it or submits it.
WORDS = {"command", "service"}
KINDS = sorted(path.parent.name for path in (WEB.parent / "jobs" / "kinds").glob("*/definition.py"))


def spelled(kind: str, name: str, text: str) -> bool:
    """True where a source names a kind outside the kind's page and the table of kinds."""
    if name == "kinds.ts" or name.startswith(OWN.get(kind, ())):
        return False
    if kind in WORDS:
        return re.search(rf"""(type|kind)\W{{1,5}}["']{kind}["']|submit {kind}\b""", text) is not None
    return re.search(rf"\b{kind}s?\b", text.replace("Threads Cluster", ""), re.IGNORECASE) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_named_in_one_table(kind: str) -> None:
    names = {str(path.relative_to(WEB / "src")): path for path in sources("src")}
    assert [name for name, path in names.items() if spelled(kind, name, path.read_text())] == []


def test_a_kind_named_elsewhere_is_seen() -> None:
    assert spelled("collatz", "pages/cluster/drawer.tsx", 'const PAGES = { collatz: "/collatz.html" };')
    assert spelled("thread", "ui/page.tsx", 'type PageName = "threads";')
    assert spelled("command", "ui/page.tsx", 'if (job.type === "command") {')
    assert spelled("command", "ui/page.tsx", 'submitted({ kind: "command" })')
    assert not spelled("command", "ui/page.tsx", "<pre>{kind.command}</pre>")
    assert not spelled("thread", "ui/page.tsx", "document.title = `Threads Cluster`;")


def test_nobody_is_called_node_but_a_place_in_a_tree() -> None:
    """A process that takes work is a worker, a machine a host; the inverse tree of Collatz has nodes."""
    names = {str(path.relative_to(WEB / "src")): path for path in sources("src")}
    trees = ("pages/collatz/",)
    using = [name for name, path in names.items() if re.search(r"\bnodes?\b", path.read_text(), re.IGNORECASE)]
    assert [name for name in using if not name.startswith(trees)] == []
