"""The documentation site: its generated reference, and pages that load nothing from other hosts."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from html import unescape
from pathlib import Path, PurePosixPath

import pytest

from deploy.docs import http_reference, inline_scripts, links, setting_reference
from jobs import metrics
from tests.unit import monitoring
from threads_cluster.cli.main import commands

ROOT = Path(__file__).resolve().parents[2]
RULES = (ROOT / "web/Dockerfile.dockerignore").read_text().splitlines()
#: Resources that a browser loads with a page.
RESOURCE = re.compile(r"""<(?:script|img|link|iframe|source|video)\b[^>]*?\b(?:src|href)=["']([^"']+)""")


def is_in_image(path: str) -> bool:
    """Return whether Docker would send the file to the build of the web image. The last rule that matches decides."""
    names = [path, *map(str, PurePosixPath(path).parents)]
    found = False
    for rule in RULES:
        pattern = rule.removeprefix("!")
        patterns = {pattern, pattern.removeprefix("**/")}
        if rule and not rule.startswith("#") and any(fnmatchcase(name, each) for name in names for each in patterns):
            found = rule.startswith("!")
    return found


def built(folder: Path) -> Path:
    """Build the site from a copy of the files that the web image is built from, and return the site's folder."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    for name in filter(None, listed):
        if is_in_image(name) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "web/dist/docs"


def documented_commands() -> set[str]:
    root = commands.__wrapped__()  # Not cached: other tests load the kinds of a cluster into the cached group
    names = set()
    for name, command in root.commands.items():
        names |= {f"cluster {name}", *(f"cluster {name} {each}" for each in getattr(command, "commands", {}))}
    return names


def check_page(page: Path, site: Path) -> None:
    """Fail if the Content-Security-Policy would block a part of the page, or if a resource does not exist."""
    html = page.read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=\"|<script>", html), page
    for address in map(unescape, RESOURCE.findall(html)):
        assert not re.match(r"[a-z]+:|//", address), (page, address)
        assert (page.parent / address.partition("#")[0]).resolve().is_relative_to(site.resolve())
        assert (page.parent / address.partition("#")[0]).exists(), (page, address)


def test_the_site_is_complete_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    site = built(tmp_path)
    pages = [*site.rglob("*.html")]
    assert len(pages) > 100
    for page in pages:
        check_page(page, site)
    assert (site / "search/search_index.json").stat().st_size > 100_000
    compressed = (site / "index.html.gz").read_bytes()
    assert gzip.decompress(compressed) == (site / "index.html").read_bytes()
    reference = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
    settings = (site / "settings.html").read_text()
    for name in setting_reference.variables():
        assert f"<code>{name.upper()}</code>" in settings, name
    for each in vars(metrics).values():
        assert not isinstance(each, metrics.Metric) or f"<code>{each.name}</code>" in reference["metrics"], each.name
    assert set(re.findall(r'<h[23] id="[^"]*">(cluster [a-z -]+)<', reference["cluster"])) == documented_commands()
    runbooks = re.findall(r"/docs/(\S+)#([^\s\"]+)", "".join(path.read_text() for path in monitoring.RULES))
    assert len(runbooks) > 30
    for page, anchor in runbooks:
        assert f'id="{anchor}"' in (site / page).read_text(), anchor
    listed = (site / "reference/http/index.html").read_text()
    for path in ("/api/submit", "/api/jobs/{job_id}", "/health", "/v1/chat/completions"):
        assert path in listed


def test_every_setting_has_a_description() -> None:
    files = (ROOT / "jobs/settings.py", ROOT / "threads_cluster/settings.py")
    described = {name for file in files for name in setting_reference.comments(file)}
    assert setting_reference.variables().keys() <= described


def test_every_operation_has_a_page_of_its_domain() -> None:
    pages = http_reference.render(ROOT)
    targets = re.findall(r"\((\w+)\.md#([^)]+)\)", pages["index"])
    assert len(targets) > 100
    for page, anchor in targets:
        assert f"{{ #{anchor} }}" in pages[page]
    assert pages["jobs"].startswith("# HTTP API: jobs\n\nSubmit jobs, ")
    assert "Request body, `application/json`: [Submission](#type-submission)." in pages["jobs"]


@pytest.mark.parametrize(
    ("link", "source", "expected"),
    [
        ("[a](audit.md#c)", "docs/access.md", "[a](audit.md#c)"),
        ("[a](../jobs/kinds/thread/README.md)", "docs/access.md", "[a](jobs/kinds/thread/README.md)"),
        ("[a](../../../docs/audit.md#c)", "jobs/kinds/thread/README.md", "[a](../../../audit.md#c)"),
        ("[`a`](../../jobs/kinds/thread)", "docs/decisions/README.md", "[`a`](../jobs/kinds/thread/README.md)"),
        ("![a](../docs/audit.md)", "web/README.md", "![a](../audit.md)"),
        # Files that are not in the site.
        ("see [metrics](../jobs/metrics.py)", "docs/access.md", "see metrics"),
        # MkDocs reports this one.
        ("[a](gone.md)", "docs/access.md", "[a](gone.md)"),
        ("[a](#b) [c](https://d.test/e.md)", "docs/access.md", "[a](#b) [c](https://d.test/e.md)"),
        ("```\n[a](../jobs/metrics.py)\n```", "docs/access.md", "```\n[a](../jobs/metrics.py)\n```"),
    ],
)
def test_links_to_the_checkout_become_links_within_the_site(link: str, source: str, expected: str) -> None:
    pages = {
        "docs/access.md",
        "docs/audit.md",
        "docs/decisions/README.md",
        "jobs/kinds/thread/README.md",
        "web/README.md",
    }
    assert links.rewrite(link, source, ROOT, pages) == expected


def test_inline_scripts_become_files(tmp_path: Path) -> None:
    data = '<script id="data" type="application/json">{}</script>'
    html = inline_scripts.extract(f"<script>one()</script>{data}<script>one()</script>", "a/b.html", tmp_path)
    [file] = (tmp_path / inline_scripts.FOLDER).iterdir()
    assert file.read_text() == "one()"
    script = f'<script src="../{inline_scripts.FOLDER}/{file.name}"></script>'
    assert html == script + data + script
