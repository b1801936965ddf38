"""Tests the live progress of jobs in terminals and notebooks."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tests.unit.cluster_fake import job
from threads_cluster.client import progress_bars
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


def test_a_notebook_updates_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    class Handle:
        def update(self, page: str) -> None:
            pages.append(page)

    def display(page: str, *, display_id: bool) -> Handle:
        pages.append(page)
        return Handle()

    module = types.ModuleType("IPython.display")
    module.__dict__.update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress_bars, "in_notebook", lambda: True)
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
