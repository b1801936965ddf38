"""Tests profiles on the Cluster page against a fake coordinator: start, progress, stop and figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import DIST, PHONE, Open, shot, violations
from tests.browser.programs import Programs, served

HEAD = {
    "profile": 1,
    "id": "a" * 16,
    "host": "attic",
    "hz": 10,
    "cores": 4,
    "devices": ["host:attic"],
    "wall": 1795312800.0,
    "offset": 0,
}


def recorded(**head: Any) -> bytes:
    """Return a recording of one minute, in which a host is idle for half of the time and uses three of four cores
    otherwise.
    """
    core, lines = 0.0, [json.dumps({**HEAD, **head})]
    for number in range(601):
        core += 0.3 if number > 300 else 0.0
        lines.append(json.dumps({"t": number / 10, "cpu": round(core, 3), "m": 2 << 30}))
    return gzip.compress("\n".join(lines).encode())


class Profiling(Programs):
    """Fake coordinator with profiles, which finish as soon as they are stopped."""

    def __init__(self) -> None:
        super().__init__(1, {})
        self.profiles: list[dict[str, Any]] = []
        self.refusal = ""
        self.outputs = {"attic-cpu-1.1.jsonl.gz": recorded(), "profile.json": b"{}"}

    def answer(self, path: str, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
        if path == "/api/hosts":
            return {"hosts": []}, {}
        if path == "/api/profiles":
            return {"profiles": self.profiles}, {}
        return super().answer(path, query)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        if self.refusal:
            return 409, {"title": "Conflict", "status": 409, "detail": self.refusal, "field": "name"}
        if path == "/api/profiles":
            self.profiles.insert(0, row(**body))
        if path.endswith("/stop"):
            self.profiles[0] |= {"state": "done", "artifact_id": "a" * 64, "ended": "2026-11-23T10:01:00.000Z"}
            self.profiles[0]["recordings"][0] |= {"state": "kept", "ended": "stopped"}
        return 201, self.profiles[0]


def row(name: str, hz: int, seconds: int) -> dict[str, Any]:
    recording = {
        "name": "attic-cpu-1.1",
        "worker": "attic-cpu-1",
        "host": "attic",
        "devices": ["host:attic"],
        "state": "recording",
        "samples": 601,
        "missed": 2,
        "seconds": 60.0,
        "bytes": 20_480,
        "cpu_seconds": 0.3,
        "ended": None,
    }
    return {
        "name": name,
        "id": "0" * 16,
        "tenant": "default",
        "state": "recording",
        "hz": hz,
        "hosts": [],
        "job_id": None,
        "created": "2026-11-23T10:00:00.000Z",
        "ends": "2026-11-23T11:00:00.000Z",
        "ended": None,
        "artifact_id": None,
        "trouble": None,
        "samples": 601,
        "missed": 2,
        "bytes": 20_480,
        "recordings": [recording],
    }


@pytest.fixture
def profiling() -> Iterator[tuple[Profiling, str]]:
    """Start a fake coordinator without profiles, and return it with the URL of its page of hosts."""
    known = Profiling()
    with served(known, DIST) as url:
        yield known, f"{url}/cluster.html#tab=hosts"


def test_a_profile_from_its_start_to_its_figures(profiling: tuple[Profiling, str], open_address: Open) -> None:
    known, address = profiling
    page = open_address(address)
    expect(page.get_by_text("cluster profile start night --hz 10")).to_be_visible()
    page.get_by_role("button", name="New profile").click()
    page.get_by_label("Name").fill("dusk")
    page.get_by_label("Samples per second").select_option("100")
    known.refusal = "name: there is a profile dusk already; delete it first, or choose another name"
    page.get_by_role("button", name="Start recording").click()
    expect(page.get_by_role("alert")).to_contain_text("there is a profile dusk already")
    known.refusal = ""
    page.get_by_role("button", name="Start recording").click()
    table = page.get_by_role("region", name="Profiles")
    expect(table.get_by_role("row", name="dusk")).to_contain_text("recording")
    assert [known.profiles[0][field] for field in ("name", "hz")] == ["dusk", 100]
    expect(table.get_by_role("row", name="dusk")).to_contain_text("601")
    opened = page.get_by_role("region", name="Profile dusk")
    expect(opened).to_contain_text("attic-cpu-1")
    page.get_by_role("button", name="Stop dusk").click()
    expect(table.get_by_role("row", name="dusk")).to_contain_text("done")
    figures = page.get_by_role("region", name="Figures of each device")
    expect(figures.get_by_role("row", name="attic")).to_contain_text("2\u202fGiB")
    cells = figures.get_by_role("row", name="attic").get_by_role("cell").all_inner_texts()
    assert cells[1:4] == ["38\u202f%", "75\u202f%", "50\u202f%"], "mean, most of the time, idle"
    expect(page.get_by_role("figure", name="Use of hosts and GPUs")).to_be_visible()
    with page.expect_download() as saved:
        opened.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == "dusk-attic-cpu-1.1.jsonl.gz"
    assert saved.value.path().read_bytes() == known.outputs["attic-cpu-1.1.jsonl.gz"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_whole_and_accessible(profiling: tuple[Profiling, str], open_address: Open, theme: str) -> None:
    known, address = profiling
    known.post("/api/profiles", {"name": "dusk", "hz": 10, "seconds": 60})
    known.post("/api/profiles/dusk/stop", None)
    for size, name in (({"width": 1440, "height": 1000}, "wide"), (PHONE, "phone")):
        page = open_address(address, theme=theme, viewport=size)
        page.get_by_role("button", name="dusk", exact=True).click()
        expect(page.get_by_role("region", name="Figures of each device")).to_contain_text("GiB")
        assert violations(page) == []
        shot(page, f"profiles-{name}-{theme}")


def test_recordings_that_are_gone_or_none_are_said_to_be(profiling: tuple[Profiling, str], open_address: Open) -> None:
    known, address = profiling
    known.post("/api/profiles", {"name": "dusk", "hz": 10, "seconds": 60})
    known.post("/api/profiles/dusk/stop", None)
    known.outputs = {"attic-cpu-1.1.jsonl.gz": gzip.compress(b"<script>alert(1)</script>")}
    page = open_address(address)
    page.get_by_role("button", name="dusk", exact=True).click()
    expect(page.get_by_text("No sample was recorded.")).to_be_visible()
    known.profiles[0]["artifact_id"] = "b" * 64
    expect(page.get_by_text("It could not be read: there is no /api/artifacts/")).to_be_visible()
