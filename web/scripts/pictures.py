"""Writes docs/images: what the pages show in light and in dark, and twenty seconds of a simulation as it plays.

From the repository's top, after make web:
.venv/bin/python -m pip install pillow && .venv/bin/python web/scripts/pictures.py [NAME]...

A cluster of two workers of two lanes computes what is shown. Each picture has at most 256 colours and 250 KB; playback
is drawn by a clock of its own, a frame each tenth of a second, so that the machine's speed shows in none of them.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from tests.browser.conftest import FLAGS, settled  # noqa: E402
from tests.integration.live import Live  # noqa: E402

IMAGES = TOP / "docs" / "images"
DIST = TOP / "web" / "dist"
SIZE = {"width": 1280, "height": 720}
MOST_BYTES, MOST_BYTES_MOVING = 250_000, 3_000_000
#: Of the playback.
FRAMES, FRAME_MS = 200, 100
WIDE = {"width": 960, "height": 600}


@contextmanager
def cluster() -> Iterator[Live]:
    live = Live(Path(tempfile.mkdtemp()), workers=2, lanes=2, nice=5, PAGES_DIR=str(DIST))
    try:
        yield live.start()
    finally:
        live.stop()


def opened(browser: Browser, address: str, theme: str, size: dict[str, int] = SIZE) -> Page:
    page = browser.new_context(viewport=size, color_scheme=theme).new_page()  # type: ignore[arg-type]
    page.goto(address)
    page.locator(".connection[data-state=live]").wait_for()
    return page


def keep(page: Page, name: str, theme: str) -> None:
    """Write what the page shows now."""
    settled(page)
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    path = IMAGES / f"{name}{'-dark' if theme == 'dark' else ''}.png"
    image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(TOP)}: {size / 1000:.0f} KB")
    assert size <= MOST_BYTES, f"{path} has {size} bytes, more than {MOST_BYTES}"
    page.context.close()


# -- one page each ----------------------------------------------------------------------------------------------------


def threads(browser: Browser, live: Live) -> None:
    job = live.submit("thread", {"thread_count": 40, "max_depth": 5, "replicas": 300, "cores": 8, "seed": 1})
    live.wait_for(job, "done")
    for theme in ("light", "dark"):
        page = opened(browser, f"{live.url()}/#job={job}", theme)
        page.get_by_text("Makespan over replicas").first.wait_for()
        keep(page, "threads", theme)


def collatz(browser: Browser, live: Live) -> None:
    for theme in ("light", "dark"):
        page = opened(browser, f"{live.url()}/collatz.html", theme)
        page.wait_for_timeout(4000)
        keep(page, "collatz", theme)


def kinds(browser: Browser, live: Live) -> None:
    job = live.submit("collatz", {"start_number": 1, "number_count": 10**8})
    live.wait_for(job, "done")
    for theme in ("light", "dark"):
        keep(opened(browser, f"{live.url()}/kinds.html#kind=collatz&job={job}", theme), "kinds", theme)


def fleet(browser: Browser, live: Live) -> None:
    """The cluster after some minutes of different work, with two jobs that run and one that waits."""
    for done in (
        {"start_number": 1, "number_count": 10**10},
        {"start_number": 2**40, "number_count": 2**42, "mode": "verify"},
    ):
        live.wait_for(live.submit("collatz", done), "done", 300)
    live.wait_for(live.submit("thread", {"cores": [1, 2, 4, 8, 16], "replicas": 4096, "seed": 7}), "done", 300)
    running = [
        live.submit("collatz", {"start_number": 10**15, "number_count": 10**13}),
        live.submit(
            "thread", {"cores": [4, 8, 16, 32], "scheduler": ["fifo", "work_stealing"], "replicas": 10**6, "seed": 8}
        ),
    ]
    time.sleep(45)
    for theme in ("light", "dark"):
        page = opened(browser, f"{live.url()}/cluster.html", theme)
        page.wait_for_timeout(8000)
        keep(page, "cluster", theme)
    for job in running:
        live.post(f"/api/jobs/{job}/cancel")


# -- playback ---------------------------------------------------------------------------------------------------------


def playback(browser: Browser, live: Live) -> None:
    """Play one simulation from its beginning to its end, by a clock that moves a frame at a time."""
    job = live.submit("thread", {"thread_count": 12, "max_depth": 6, "replicas": 300, "cores": 8, "seed": 4})
    live.wait_for(job, "done")
    page = browser.new_context(viewport=WIDE, color_scheme="light").new_page()  # type: ignore[arg-type]
    page.clock.install()
    page.goto(f"{live.url()}/#job={job}")
    page.get_by_text("Makespan over replicas").first.wait_for()
    page.wait_for_timeout(2000)
    play(page)
    frames = []
    for _ in range(FRAMES):
        page.clock.run_for(FRAME_MS)
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    write_moving(frames, IMAGES / "playback.gif")
    page.context.close()


def play(page: Page) -> None:
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)
    page.keyboard.press("r")
    page.clock.run_for(200)
    page.keyboard.press("Space")


def write_moving(frames: list[Image.Image], path: Path) -> None:
    """Write frames with one palette, each as what differs from the one before."""
    palette = mixed(frames).quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    flat = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in frames]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=FRAME_MS, loop=0, optimize=True, disposal=1)
    size = path.stat().st_size
    print(f"{path.relative_to(TOP)}: {size / 1000:.0f} KB, {len(frames)} frames")
    assert size <= MOST_BYTES_MOVING, f"{path} has {size} bytes, more than {MOST_BYTES_MOVING}"


def mixed(frames: list[Image.Image]) -> Image.Image:
    """Some of the frames side by side, from which the colours of all are chosen."""
    some = frames[:: max(1, len(frames) // 8)]
    sheet = Image.new("RGB", (frames[0].width * len(some), frames[0].height))
    for place, each in enumerate(some):
        sheet.paste(each, (place * each.width, 0))
    return sheet


PICTURES: dict[str, Callable[[Browser, Live], None]] = {
    "threads": threads, "collatz": collatz, "kinds": kinds, "cluster": fleet, "playback": playback,
}  # fmt: skip


def main(names: list[str]) -> None:
    with cluster() as live, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for name in names or PICTURES:
            PICTURES[name](browser, live)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
