"""MkDocs hooks of the documentation site. See https://www.mkdocs.org/user-guide/configuration/#hooks."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from deploy.docs import (
    command_reference,
    http_reference,
    inline_scripts,
    links,
    metric_reference,
    notebook_page,
    setting_reference,
)

ROOT = Path(__file__).resolve().parents[2]
#: Patterns of pages outside of docs/ that belong to the site.
_READMES = ("engines/*/README.md", "jobs/kinds/*/README.md", "nginx/README.md", "web/README.md", "tests/*/README.md")
_HTTP = "reference/http"
#: Placeholder in docs/settings.md that is replaced by the tables of settings.
_SETTINGS = "<!-- generated: settings -->"
#: Minimum size in bytes of a file that is compressed.
_COMPRESSED_FROM = 1000
#: Generated files that are deleted. Coordinators have their own error page, and no sitemap is needed.
_UNUSED = ("404.html", "sitemap.xml", "sitemap.xml.gz")
_TEXTS = {".css", ".html", ".js", ".json", ".svg", ".xml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the HTTP API to the navigation, one per domain."""
    pages = [{name.capitalize(): f"{_HTTP}/{name}.md"} for name in http_reference.render(ROOT)]
    _expand(config.nav, f"{_HTTP}/index.md", pages)
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages and the READMEs to the site."""
    for name, text in references().items():
        files.append(File.generated(config, name, content=text))
    for path in readmes():
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the tables of settings, and change links to files of the checkout."""
    # In the checkout, the page has only an introduction, so that links to the page are valid.
    markdown = markdown.replace(_SETTINGS, setting_reference.render(ROOT)) if _SETTINGS in markdown else markdown
    markdown = markdown.replace(f"({notebook_page.SOURCE})", f"({notebook_page.PAGE})")
    return links.rewrite(markdown, _in_checkout(page.file), ROOT, {_in_checkout(each) for each in files})


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    return inline_scripts.extract(output, page.file.dest_uri, Path(config.site_dir))


def on_post_build(*, config: MkDocsConfig) -> None:
    """Delete unused pages, and compress files. Coordinators serve the compressed files."""
    site = Path(config.site_dir)
    for name in _UNUSED:
        (site / name).unlink(missing_ok=True)
    for file in [*site.rglob("*")]:
        if file.suffix in _TEXTS and file.stat().st_size >= _COMPRESSED_FROM:
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 6, mtime=0))


def references() -> dict[str, str]:
    """Return the generated pages, keyed by their path in the site."""
    return {
        "reference/cluster.md": command_reference.render(),
        "reference/metrics.md": metric_reference.render(),
        notebook_page.PAGE: notebook_page.render(ROOT),
        **{f"{_HTTP}/{name}.md": text for name, text in http_reference.render(ROOT).items()},
    }


def readmes() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for each in _READMES for path in ROOT.glob(each))


def _in_checkout(file: File) -> str:
    return file.src_uri if file.src_dir == str(ROOT) else f"docs/{file.src_uri}"


def _expand(entries: Any, page: str, pages: list[dict[str, str]]) -> None:
    """Replace the entry of a page in the navigation with several entries."""
    for each in entries if isinstance(entries, list) else ():
        for title, value in each.items() if isinstance(each, dict) else ():
            if value == page:
                each[title] = pages
            else:
                _expand(value, page, pages)
