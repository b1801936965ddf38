"""Tests that addresses of package registries come from the machine and never from the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIRROR = ROOT / "deploy/debian-mirror.sh"
REGISTRY = re.compile(r"deb\.debian\.org|pypi\.org|pythonhosted\.org|registry\.npmjs\.org|security\.debian\.org")


def _mirror(tools: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MIRROR], capture_output=True, text=True, timeout=20, env={"PATH": f"{tools}:/usr/bin:/bin", **environment}
    )


def _apt(tools: Path, *rows: str) -> Path:
    """Create an apt-get that lists these sources and precedes the machine's own."""
    tool = tools / "apt-get"
    tool.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(rows) + "\nEND\n")
    tool.chmod(0o755)
    return tools


def test_no_file_names_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    own = Path(__file__).relative_to(ROOT)
    files = [ROOT / name for name in listed if name and Path(name) != own and (ROOT / name).is_file()]
    naming = [str(file.relative_to(ROOT)) for file in files if REGISTRY.search(file.read_text(errors="ignore"))]
    assert len(files) > 300 and naming == []


def test_the_mirror_is_the_one_of_apt(tmp_path: Path) -> None:
    tools = _apt(
        tmp_path,
        "Other Other main http://a.test/",
        "Debian Debian-Security main http://b.test/",
        "Debian Debian contrib http://c.test/",
        "Debian Debian main http://d.test/debian/",
        "Debian Debian main http://e.test/debian/",
    )
    assert _mirror(tools).stdout == "http://d.test/debian\n"


def test_debian_mirror_wins(tmp_path: Path) -> None:
    tools = _apt(tmp_path, "Debian Debian main http://d.test/debian/")
    assert _mirror(tools, DEBIAN_MIRROR="http://e.test/debian/").stdout == "http://e.test/debian\n"


def test_without_a_mirror_it_says_what_to_set(tmp_path: Path) -> None:
    done = _mirror(_apt(tmp_path, "Ubuntu Ubuntu main http://u.test/ubuntu/"))
    assert done.returncode == 3 and "DEBIAN_MIRROR" in done.stderr
