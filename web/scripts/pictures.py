"""Writes docs/images: screenshots of the pages in the light and dark themes, and a GIF of a simulation's playback.

Run from the top of the repository, after `make web`: .venv/bin/python -m pip install pillow && .venv/bin/python
web/scripts/pictures.py [NAME]...

A cluster of two workers with two lanes each runs the jobs shown. Each picture has at most 256 colors and 250 KB. A fake
browser clock times the frames of the GIF, so the result does not depend on the machine's speed.
"""

from __future__ import annotations

import io
import signal
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
from tests.integration.live import Live, until  # noqa: E402

IMAGES = TOP / "docs" / "images"
DIST = TOP / "web" / "dist"
SIZE = {"width": 1280, "height": 720}
THEMES = ("light", "dark")
MOST_BYTES, MOST_BYTES_MOVING = 250_000, 3_000_000
#: Number of frames of the playback, and milliseconds of page time between two frames.
FRAMES, FRAME_MS = 200, 100
#: Playback speed. At speed 1, the page plays the whole run in 100 s.
SPEED = 5.5


@contextmanager
def cluster() -> Iterator[Live]:
    live = Live(Path(tempfile.mkdtemp()), workers=2, lanes=2, nice=5, PAGES_DIR=str(DIST), HOST_ID="desk")
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
    """Save a screenshot of a page in docs/images, then close its browser context."""
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
    """Save the Threads page with one run on eight cores and a selected thread."""
    job = live.submit("thread", {"thread_count": 40, "max_depth": 5, "replicas": 300, "cores": 8, "seed": 1})
    live.wait_for(job, "done")
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/#job={job}", theme)
        page.get_by_text("Makespan over replicas").first.wait_for()
        page.locator(".picture canvas").last.click(position={"x": 560, "y": 15})
        keep(page, "threads", theme)


def sweep(browser: Browser, live: Live) -> None:
    """Save the Threads page with the speedup of each scheduler by number of cores."""
    costs = {"dispatch_cost_us": 15, "steal_cost_us": 40, "spawn_cost_us": 5}
    machines = {"cores": [1, 2, 4, 8, 16, 32], "scheduler": ["fifo", "lifo", "work_stealing"]}
    job = live.submit("thread", {"thread_count": 12, "max_depth": 14, "replicas": 200, "seed": 3, **machines, **costs})
    live.wait_for(job, "done", 300)
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/#job={job}&cell=11", theme)
        page.get_by_text("Makespan over replicas").first.wait_for()
        page.wait_for_timeout(2000)
        keep(page, "sweep", theme)


def collatz(browser: Browser, live: Live) -> None:
    """Save the Collatz page with the delays of a million numbers, counted in the browser."""
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/collatz.html", theme)
        page.get_by_text("All of 1").first.wait_for()
        page.wait_for_timeout(4000)
        keep(page, "collatz", theme)


def coral(browser: Browser, live: Live) -> None:
    """Save the Collatz page with a fully grown coral of the same numbers."""
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/collatz.html#view=coral", theme)
        page.wait_for_timeout(12_000)
        keep(page, "coral", theme)


def kinds(browser: Browser, live: Live) -> None:
    """Save the Kinds page with a job's result as figures, tables and histograms."""
    job = live.submit("collatz", {"start_number": 1, "number_count": 10**8})
    live.wait_for(job, "done", 60)
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/job.html#job={job}&tab=result", theme)
        page.locator(".histogram").first.wait_for()
        keep(page, "kinds", theme)


def fleet(browser: Browser, live: Live) -> None:
    """Save the Cluster page after several jobs of different kinds, with two running jobs and one waiting job."""
    ended = [
        ("collatz", {"start_number": 1, "number_count": 10**10}),
        ("collatz", {"mode": "verify", "start_number": 2**40, "number_count": 2**42}),
        ("thread", {"cores": [1, 2, 4, 8, 16], "replicas": 4096, "seed": 7}),
    ]
    for kind, parameters in ended:
        live.wait_for(live.submit(kind, parameters), "done", 300)
    running = [
        live.submit("collatz", {"start_number": 10**15, "number_count": 10**13}),
        live.submit("thread", {"cores": 16, "scheduler": ["fifo", "work_stealing"], "replicas": 10**7, "seed": 8}),
        live.submit("collatz", {"mode": "verify", "start_number": 2**66, "number_count": 2**45}, device="gpu"),
    ]
    time.sleep(45)
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/cluster.html", theme)
        page.wait_for_timeout(8000)
        keep(page, "cluster", theme)
    for job in running:
        live.post(f"/api/jobs/{job}/cancel")


def hosts(browser: Browser, live: Live) -> None:
    """Save the list of hosts: one busy worker, one host that also has a runner, and one lost worker."""
    live.start_worker(2, HOST_ID="attic")
    live.start_worker(3, HOST_ID="cellar")
    live.start_runner(0, HOST_ID="attic", RUNNER_LABELS="ssd,quiet")
    live.wait_ready(5)
    job = live.submit("collatz", {"start_number": 10**15, "number_count": 10**13})
    time.sleep(10)
    live.kill("worker-3")
    time.sleep(10)
    for theme in THEMES:
        page = opened(browser, f"{live.url()}/cluster.html#tab=hosts", theme, {"width": 1280, "height": 400})
        page.locator(".host-table tbody tr").nth(2).wait_for()
        keep(page, "hosts", theme)
    live.post(f"/api/jobs/{job}/cancel")
    for name in ("worker-2", "runner-0"):
        live.kill(name, signal.SIGTERM)


#: A fake engine: answers each request with the same text, one word every 25 ms.
SPEAKER = """
import http.server, json, sys, time
TEXT = ("A service keeps replicas of an engine up. Each replica is a job without an end, so it has a lease, a log "
        "and an entry in the audit log as every job.\\n\\nA request goes to the ready replica with the fewest "
        "requests. A replica that dies is followed by another; the others go on meanwhile.")
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close"); self.end_headers()
        words = TEXT.split(" ")
        for word in words:
            time.sleep(0.025)
            chunk = {"choices": [{"index": 0, "delta": {"content": word + " "}}]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\\n\\n"); self.wfile.flush()
        usage = {"choices": [], "usage": {"prompt_tokens": 6, "completion_tokens": len(words)}}
        self.wfile.write(b"data: " + json.dumps(usage).encode() + b"\\n\\ndata: [DONE]\\n\\n")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
TOKEN = "t" * 40


def services(browser: Browser, _live: Live) -> None:
    """Save the page of a service with two replicas and two chats. Services need a token, so the cluster has one."""
    folder = Path(tempfile.mkdtemp(prefix="runner-"))
    folder.chmod(0o711)
    own = Live(
        Path(tempfile.mkdtemp()),
        workers=0,
        CLUSTER_TOKEN=TOKEN,
        ARTIFACT_URL=f"file://{folder}/artifacts",
        HOST_ID="attic",
        PAGES_DIR=str(DIST),
    )
    try:
        own.start_redis()
        own.start_coordinator()
        own.start_runner(0, 4, RUNNER_DIR=str(folder / "runner"), HOST_ID="attic")
        own.wait_ready(1)
        parameters = {"command": ["{python}", "-u", "-c", SPEAKER, "{port}"], "health": "/"}
        own.post("/api/services", {"name": "speaker", "engine": "http", "replicas": 2, "parameters": parameters})
        until(lambda: own.get("/api/services/speaker")["ready"] == 2)
        for theme in THEMES:
            talked(browser, own, theme)
    finally:
        own.stop()


def talked(browser: Browser, own: Live, theme: str) -> None:
    code = own.post("/api/login-codes").json()["code"]
    page = opened(browser, f"{own.url()}/cluster.html#login={code}", theme, {"width": 1280, "height": 820})
    page.goto(f"{own.url()}/cluster.html#tab=services&service=speaker")
    for _ in range(2):
        for clear in page.get_by_role("button", name="Clear").all():
            clear.click()
        page.get_by_label("Message").fill("What is a service?")
        page.get_by_role("button", name="Send").click()
        page.get_by_text("Answered", exact=True).wait_for()
        page.wait_for_timeout(2500)
    page.evaluate("scrollTo(0, 0)")
    keep(page, "services", theme)


# -- playback ---------------------------------------------------------------------------------------------------------


def playback(browser: Browser, live: Live) -> None:
    """Save a GIF of the Threads page that plays its example run from start to end, one frame at a time."""
    page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()  # type: ignore[arg-type]
    page.clock.install()
    page.goto(f"{live.url()}/#speed={SPEED}")
    page.get_by_role("button", name="Pause").wait_for()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)
    for key in ("r", "Space"):
        page.keyboard.press(key)
        page.clock.run_for(50)
    page.get_by_role("button", name="Dismiss").click()
    frames = []
    for _ in range(FRAMES):
        page.clock.run_for(FRAME_MS)
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    write_moving(frames, IMAGES / "playback.gif")
    page.context.close()


def write_moving(frames: list[Image.Image], path: Path) -> None:
    """Write frames as a GIF with a common palette. Each frame stores only the pixels that changed."""
    palette = mixed(frames).quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    flat = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in frames]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=FRAME_MS, loop=0, optimize=True, disposal=1)
    size = path.stat().st_size
    print(f"{path.relative_to(TOP)}: {size / 1000:.0f} KB, {len(frames)} frames")
    assert size <= MOST_BYTES_MOVING, f"{path} has {size} bytes, more than {MOST_BYTES_MOVING}"


def mixed(frames: list[Image.Image]) -> Image.Image:
    """Return about eight of the frames side by side in one image, from which the palette is computed."""
    some = frames[:: max(1, len(frames) // 8)]
    sheet = Image.new("RGB", (frames[0].width * len(some), frames[0].height))
    for place, each in enumerate(some):
        sheet.paste(each, (place * each.width, 0))
    return sheet


PICTURES: dict[str, Callable[[Browser, Live], None]] = {
    "threads": threads,
    "sweep": sweep,
    "collatz": collatz,
    "coral": coral,
    "kinds": kinds,
    "cluster": fleet,
    "hosts": hosts,
    "services": services,
    "playback": playback,
}


def main(names: list[str]) -> None:
    with cluster() as live, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for name in names or PICTURES:
            PICTURES[name](browser, live)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
