"""Rules for the pages that their formatter and linter lack: long comments and texts, and imports between parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import normpath
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
SUFFIXES = {".ts", ".tsx", ".mjs", ".css"}
IMPORT = re.compile(r"""(?:from|import|import\(|URL\()\s*"(\.[^"]+)\"""")
#: Other parts that a part can import; pages do not import each other.
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
    """Return the part of web/src to which a file belongs, and the page if the part is `pages`."""
    part, _, rest = path.partition("/")
    return part, rest.partition("/")[0] if part == "pages" else ""


def imports(name: str, text: str) -> Iterator[str]:
    for target in IMPORT.findall(text):
        yield normpath(f"{name}/../{target}")


def strays(name: str, text: str) -> list[str]:
    """Return the forbidden imports of a source."""
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


#: Table of kinds: a kind, and the name and URL of its page if it has one.
TABLE = re.compile(
    r"""^  (\w+): \{\n(?:    page: \{ name: "(\w+)", address: "([^"]+)")?""",
    re.MULTILINE,
)
KINDS = TABLE.findall((WEB / "src" / "kinds.ts").read_text().partition("export const KINDS")[2].partition("\n};")[0])
#: A source that compares a job's kind with a name.
COMPARED = re.compile(r"""\bjob\??\.type\s*[!=]==\s*["']""")


def names_of_kinds(name: str, text: str) -> list[str]:
    """Return the places where a source names a kind, outside the table of kinds and the kind's own page."""
    if name == "kinds.ts":
        return []
    others = [entry for entry in KINDS if not entry[1] or not name.startswith(f"pages/{entry[1]}/")]
    found = COMPARED.findall(text) if len(others) == len(KINDS) else []
    for kind, _, address in others:
        found += re.findall(rf"""(?:type|kind)\W{{1,5}}["']{kind}["']|submit {kind}\b""", text)
        found += [address] if len(address) > 1 and address in text else []
    return found


def test_kinds_are_named_in_one_table() -> None:
    assert {"collatz", "command"} <= {kind for kind, _, _ in KINDS}
    names = {str(path.relative_to(WEB / "src")): path for path in sources("src")}
    found = {name: names_of_kinds(name, path.read_text()) for name, path in names.items()}
    assert {name: named for name, named in found.items() if named} == {}


def test_a_kind_named_elsewhere_is_seen() -> None:
    assert names_of_kinds("pages/cluster/drawer.tsx", 'const PAGES = { collatz: "/collatz.html" };')
    assert names_of_kinds("ui/page.tsx", 'if (job.type === "command") {')
    assert names_of_kinds("ui/page.tsx", 'if (job?.type !== "nosuch") {')
    assert names_of_kinds("ui/page.tsx", 'submitted({ kind: "command" })')
    assert names_of_kinds("pages/threads/app.tsx", 'if (job.type === "collatz") {')
    assert not names_of_kinds("pages/collatz/app.tsx", 'if (job.type === "collatz") {')
    assert not names_of_kinds("ui/page.tsx", "<pre>{kind.command}</pre>")
    assert not names_of_kinds("ui/page.tsx", "document.title = `Threads Cluster`;")


def test_nobody_is_called_node_but_a_place_in_a_tree() -> None:
    """A process that computes is a worker, and a machine is a host. Only the inverse tree of Collatz has nodes."""
    names = {str(path.relative_to(WEB / "src")): path for path in sources("src")}
    trees = ("pages/collatz/",)
    using = [name for name, path in names.items() if re.search(r"\bnodes?\b", path.read_text(), re.IGNORECASE)]
    assert [name for name in using if not name.startswith(trees)] == []
