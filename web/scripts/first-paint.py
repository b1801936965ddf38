"""Compares when pages paint their first content: as they are built here, and as they were at another commit.

From the repository's top, after make web, where nothing else runs:
.venv/bin/python web/scripts/first-paint.py COMMIT [ROUNDS]

Two coordinators of one cluster serve the two, each as its build made it. A round visits each page of both with an empty
cache, in an order that changes, so that what else the machine does meets both alike; the first round is not counted.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from tests.browser.conftest import DESKTOP, FLAGS  # noqa: E402
from tests.integration.live import Live  # noqa: E402

PAGES = {"Threads": "/", "Collatz": "/collatz.html", "Cluster": "/cluster.html"}
ROUNDS = 15
#: Milliseconds from the navigation to the first content.
PAINT = """() => new Promise(done => new PerformanceObserver(seen => {
  for (const entry of seen.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({type: "paint", buffered: true}))"""


def built(commit: str, folder: Path) -> Path:
    """Build the pages of a commit with the packages that are installed here."""
    archive = subprocess.run(["git", "archive", commit, "web"], cwd=TOP, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    (folder / "web" / "node_modules").symlink_to(TOP / "web" / "node_modules")
    for script in ("schema", "build"):
        subprocess.run(["npm", "run", script], cwd=folder / "web", stdout=subprocess.DEVNULL, check=True)
    return folder / "web" / "dist"


def visited(browser: Browser, address: str) -> float:
    with browser.new_context(viewport=DESKTOP) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(address)
        milliseconds: float = page.evaluate(PAINT)
        return milliseconds


def measured(browser: Browser, live: Live, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return for each page (before, now) of each round, in milliseconds."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in PAGES}
    for turn in range(rounds + 1):
        for name, path in PAGES.items():
            times = [0.0, 0.0]
            for replica in random.sample((0, 1), 2):
                times[replica] = visited(browser, live.url(replica) + path)
            if turn:
                found[name].append((times[0], times[1]))
    return found


def main(commit: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as data:
        live = Live(Path(data), workers=0, coordinators=2)
        try:
            live.start_redis()
            for replica, dist in enumerate((built(commit, Path(before)), TOP / "web" / "dist")):
                live.environment["PAGES_DIR"] = str(dist)
                live.start_coordinator(replica)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
                found = measured(browser, live, rounds)
                browser.close()
        finally:
            live.stop()
    for name, pairs in found.items():
        old, new = median(one for one, _ in pairs), median(other for _, other in pairs)
        ratio = median(other / one for one, other in pairs)
        print(f"{name}: {old:.0f} ms before, {new:.0f} ms now, ratio {new / old:.2f} ({ratio:.2f} within a round)")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS)
