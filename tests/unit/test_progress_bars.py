"""Tests the live progress of jobs in terminals and notebooks."""

from __future__ import annotations

import io
import re
import sys
import time
import types
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.live import until
from tests.unit.calling_fake import Calling
from tests.unit.cluster_fake import job
from threads_cluster.client import progress_bars
from threads_cluster.client.calling import project
from threads_cluster.client.calling.call_display import CallDisplay
from threads_cluster.client.calling.futures import ClusterFuture
from threads_cluster.client.progress_bars import ProgressBar


def jobs() -> list[dict[str, Any]]:
    queued = job("queued", started=None, done=0)
    return [queued, job("running", done=100), job("running", done=700), job("done")]


def test_a_terminal_shows_the_title_and_the_last_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert progress_bars.follow(jobs(), is_shown=True)["state"] == "done"
    shown = capsys.readouterr().err
    assert "sums" in shown and "1000/1000" in shown


def test_nothing_is_shown_unless_requested(capsys: pytest.CaptureFixture[str]) -> None:
    assert progress_bars.follow(jobs(), is_shown=False)["state"] == "done"
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend to be a notebook, and return the HTML that it displays."""
    pages: list[str] = []

    def display(page: str, *, display_id: bool) -> SimpleNamespace:
        pages.append(page)
        return SimpleNamespace(update=pages.append)

    module = types.ModuleType("IPython.display")
    module.__dict__.update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress_bars, "in_notebook", lambda: True)
    return pages


def test_a_notebook_updates_one_output(pages: list[str]) -> None:
    progress_bars.follow(jobs(), is_shown=True)
    assert "100 of 1,000" in pages[0]
    assert "1,000 of 1,000" in pages[-1] and "● done" in pages[-1]


def test_an_interrupted_job_is_shown_as_cancelled() -> None:
    progress = ProgressBar("sums")
    progress.update(1, 10)
    with pytest.raises(KeyboardInterrupt), progress:
        raise KeyboardInterrupt
    assert "cancelled" in progress.to_html()


def test_the_title_is_escaped() -> None:
    assert "<b>x</b>" not in ProgressBar("<b>x</b>").to_html()


def test_output_of_the_program_stays_on_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich would move it to the terminal of stderr, so that a file of the results would stay empty."""
    printed, terminal = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", printed)
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar("sums") as progress:
        progress.update(1, 10)
        print("a result")
    assert printed.getvalue() == "a result\n" and "1/10" in terminal.getvalue()


def test_an_executor_shows_its_calls(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "PROJECT", project.Project({}))
    show = ProgressBar.update

    def show_late(bar: ProgressBar, done: int, total: int, state: str = "running") -> None:
        if (done, total) == (0, 1):
            time.sleep(0.2)  # As the first import of rich; the first call must not end meanwhile
        show(bar, done, total, state)

    monkeypatch.setattr(ProgressBar, "update", show_late)
    fake = Calling()
    with fake.cluster() as cluster:
        with cluster.executor() as executor:
            executor.submit(abs, -1).result()  # Starts the process of the calls
        with cluster.executor(progress=True) as executor:
            assert list(executor.map(abs, range(12))) == list(range(12))
    fake.end()
    assert re.findall(r"\d+/\d+", capsys.readouterr().err) == ["12/12"]


def test_failed_and_cancelled_calls_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, int, int, str]] = []
    monkeypatch.setattr(ProgressBar, "update", lambda bar, *numbers: shown.append((bar.title, *numbers)))
    display, calls = CallDisplay(), [ClusterFuture() for _ in range(3)]
    for call in calls:
        display.add("abs")
        call.add_done_callback(display.end)
    calls[0].finish(error=ValueError("no"))
    calls[1].cancel()
    calls[2].finish(1)
    assert shown[-3:] == [
        ("abs (1 failed)", 1, 3),
        ("abs (1 failed)", 1, 3),
        ("abs (1 failed)", 2, 3, "cancelled"),
    ]


def test_the_last_numbers_of_a_burst_are_shown(pages: list[str]) -> None:
    progress = ProgressBar("sums")
    for done in range(5):
        progress.update(done, 10)
    assert until(lambda: "4 of 10" in pages[-1])
