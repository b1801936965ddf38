"""Listener to cluster events that reconnects to a random coordinator at random times."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

import httpx

from threads_cluster.client.sse import lines


class Listener(threading.Thread):
    """Collects events after a position of the stream; `ids` contains their IDs in the order of arrival."""

    def __init__(self, urls: Sequence[str], since: str, seed: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(name="listener", daemon=True)
        self.urls, self.last, self._headers = urls, since, dict(headers or {})
        self.ids: list[str] = []
        self.connections = 0
        #: Number of received IDs at each time when the listener was told to start again.
        self.anew: list[int] = []
        self._draw = Random(f"listener {seed}")
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._connect(time.monotonic() + self._draw.uniform(0.1, 5.0))
            except httpx.TransportError:
                time.sleep(0.1)

    def _connect(self, until: float) -> None:
        headers = {**self._headers, "Last-Event-ID": self.last}
        url = self._draw.choice(self.urls) + "/api/events"
        with (
            httpx.Client(timeout=3.0, trust_env=False, verify=False) as http,
            http.stream("GET", url, headers=headers) as answer,
        ):
            if answer.status_code != 200:
                time.sleep(0.2)
                return
            self.connections += 1
            fields: dict[str, str] = {}
            for line in lines(answer.iter_raw()):
                if not line:
                    self._take(fields)
                    fields = {}
                else:
                    name, _, value = line.partition(":")
                    fields[name] = value.strip()
                if time.monotonic() > until or self._ended.is_set():
                    return

    def _take(self, fields: Mapping[str, str]) -> None:
        if fields.get("event") == "resync":
            self.anew.append(len(self.ids))
        if "id" in fields:
            self.ids.append(fields["id"])
            self.last = fields["id"]
            json.loads(fields["data"])

    def catch_up(self, event: str, seconds: float = 60.0) -> None:
        """Wait until the listener has received an event, or until the timeout."""
        deadline = time.monotonic() + seconds
        while position(self.last) < position(event) and time.monotonic() < deadline:
            time.sleep(0.05)

    def end(self) -> None:
        self._ended.set()
        self.join(10)


def position(event_id: str) -> tuple[int, int]:
    head, _, tail = event_id.partition("-")
    return int(head), int(tail)


def problems(seen: Sequence[str], written: Mapping[str, str], log_was_cut: bool, anew: Sequence[int] = ()) -> list[str]:
    """List problems with the event IDs that a listener has seen. `written` maps the IDs in the stream to their types.

    `anew` contains the number of seen IDs at each time when the listener was told to start again. Only then, and after
    a cut of the log, may the listener have missed events up to the next one that it saw.
    """
    found = ["it was told to start anew though nothing was lost"] if anew and not log_was_cut else []
    late = [
        (before, after)
        for number, (before, after) in enumerate(pairwise(seen), 1)
        if position(after) <= position(before) and number not in anew  # lost events are sent again
    ]
    if late:
        found.append(f"{len(late)} events came out of order, the first is {late[0][1]} after {late[0][0]}")
    known, gaps = set(seen), [_gap(seen, number) for number in anew]
    missing = [
        event
        for event, what in written.items()
        if what != "progress" and event not in known and not any(lo <= position(event) < hi for lo, hi in gaps)
    ]
    if missing:
        found.append(f"{len(missing)} events never came, the first is {missing[0]} ({written[missing[0]]})")
    invented = [event for event in seen if event not in written]
    if invented and not log_was_cut:
        found.append(f"{len(invented)} events came that were never written, the first is {invented[0]}")
    return found


def _gap(seen: Sequence[str], number: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the positions between which a listener may have missed events when it started again."""
    before = position(seen[number - 1]) if number else (0, 0)
    return before, position(seen[number]) if number < len(seen) else (2**64, 0)
