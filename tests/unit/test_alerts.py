"""Tests when alerts fire, when they end, and which are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.jobs import scheduler
from coordinator.telemetry import alerts
from coordinator.telemetry.alerts import AlertTracker, Facts
from jobs.models import Device
from jobs.settings import Settings
from threads_protocol.answers.fleet import Queue

RULES = alerts.rules(Settings())
NOW = "2030-01-01T12:00:00.000Z"
LATER = "2030-01-01T12:00:09.000Z"
CPU = scheduler.Fleet(lanes={Device.CPU: 2})


def queue(name: str, jobs: int = 1, oldest: float = 0.0) -> Queue:
    return {"queue": name, "jobs": jobs, "bells": jobs, "oldest_wait_seconds": oldest}


def worker(state: str = "idle", live: bool = True, seen: float = 0.5) -> Any:
    """Return the fields of a worker that alerts use."""
    return {"id": "w", "state": state, "live": live, "seen_seconds_ago": seen, "host": None, "device": "gpu"}


#: Values far beyond and just within each alert's threshold, keyed by alert ID.
CASES: dict[str, tuple[Facts, Facts]] = {
    "no-worker/gpu.normal": (
        Facts(queues=[queue("gpu.normal")], fleet=CPU),
        Facts(queues=[queue("any.normal"), queue("gpu.normal", 0)], fleet=CPU),
    ),
    "queue-wait/any.high": (
        Facts(queues=[queue("any.high", 3, 601)], fleet=CPU),
        Facts(queues=[queue("any.high", 3, 600), queue("any.low", 3, 9999)], fleet=CPU),
    ),
    "interactive-wait/any.interactive": (
        Facts(queues=[queue("any.interactive", 1, 11)], fleet=CPU),
        Facts(queues=[queue("any.interactive", 1, 9)], fleet=CPU),
    ),
    "jobs-failed/collatz": (Facts(failed={"collatz": 2}), Facts()),
    "worker-lost/w": (
        Facts(workers=[worker("lost", False, 20)]),
        Facts(workers=[worker("stopped", False, 20), worker("lost", False, 601)]),
    ),
    "heartbeat-late/w": (Facts(workers=[worker(seen=3.4)]), Facts(workers=[worker(seen=2.9)])),
    "gpu-cordoned/w": (
        Facts(workers=[worker() | {"cordoned": "Xid 79"}]),
        Facts(
            workers=[
                worker() | {"cordoned": ""},
                worker("lost", False, 601) | {"cordoned": "Xid 79"},
                worker() | {"device": "runner", "cordoned": "no room"},
            ]
        ),
    ),
    "clock-offset/h": (
        Facts(workers=[worker() | {"host": "h", "clock_offset_seconds": -0.7}]),
        Facts(workers=[worker() | {"host": "h", "clock_offset_seconds": 0.5}, worker() | {"host": "new"}]),
    ),
    "kind-refused/w": (
        Facts(workers=[worker() | {"refused": "collatz: wrong delay"}]),
        Facts(workers=[worker("stopped", False) | {"refused": "collatz: wrong delay"}]),
    ),
    "redis-memory": (Facts(memory=0.9), Facts(memory=0.85)),
    "broken": (Facts(broken=1), Facts(broken=0)),
    "audit-file": (Facts(unexported_seconds=6), Facts(unexported_seconds=5)),
}


def rounds(watch: AlertTracker, facts: Facts, known: dict[str, Any], count: int, now: str = NOW) -> dict[str, Any]:
    for _ in range(count):
        changed, gone = watch.update(known, alerts.evaluate(facts), now)
        known = {**known, **{alert["id"]: alert for alert in changed}}
        known = {name: alert for name, alert in known.items() if name not in gone}
    return known


def test_every_rule_has_a_case() -> None:
    assert {name.partition("/")[0] for name in CASES} == set(RULES)


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_beyond_its_threshold_and_is_over_within(name: str) -> None:
    beyond, within = CASES[name]
    rule = RULES[name.partition("/")[0]]
    watch = AlertTracker(RULES)
    assert rounds(watch, within, {}, 9) == {}
    assert rounds(watch, beyond, {}, rule.rounds - 1) == {}
    fired = rounds(watch, beyond, {}, 1)
    assert list(fired) == [name]
    alert = fired[name]
    assert (alert["state"], alert["since"], alert["until"]) == ("firing", NOW, None)
    assert alert["value"] > alert["threshold"] and alert["text"] and alert["unit"] == rule.unit
    again = rounds(watch, beyond, fired, 5, LATER)
    assert again[name]["since"] == NOW
    over = rounds(watch, within, again, 1, LATER)[name]
    assert (over["state"], over["since"], over["until"]) == ("resolved", NOW, LATER)
    assert over["value"] == alert["value"]


def test_a_queue_whose_workers_are_drained_asks_for_no_new_worker() -> None:
    facts = Facts(queues=[queue("any.normal")], fleet=scheduler.Fleet(drained={Device.CPU: 1}))
    [found] = rounds(AlertTracker(RULES), facts, {}, 9).values()
    assert found["rule"] == "no-worker" and found["text"].endswith("cluster drain WORKER --off")


def test_a_queue_whose_runner_has_a_full_disk_asks_for_no_new_worker() -> None:
    fleet = scheduler.Fleet(cordoned={"runner-1": (Device.RUNNER, "its disk is full")})
    [found] = rounds(AlertTracker(RULES), Facts(queues=[queue("runner.normal")], fleet=fleet), {}, 9).values()
    assert found["text"].endswith("runner-1, which serves the queue runner.normal, accepts no work: its disk is full")


def test_what_flickers_does_not_fire() -> None:
    beyond, within = CASES["no-worker/gpu.normal"]
    watch = AlertTracker(RULES)
    known: dict[str, Any] = {}
    for _ in range(5):
        known = rounds(watch, within, rounds(watch, beyond, known, 2), 1)
    assert known == {}


def test_another_leader_goes_on_with_what_fires() -> None:
    beyond, within = CASES["redis-memory"]
    known = rounds(AlertTracker(RULES), beyond, {}, 5)
    assert rounds(AlertTracker(RULES), beyond, known, 1, LATER)["redis-memory"]["since"] == NOW
    assert rounds(AlertTracker(RULES), within, known, 1, LATER)["redis-memory"]["state"] == "resolved"


def test_an_unchanged_alert_is_not_written_again() -> None:
    beyond, _ = CASES["jobs-failed/collatz"]
    watch = AlertTracker(RULES)
    known = rounds(watch, beyond, {}, 1)
    assert watch.update(known, alerts.evaluate(beyond), LATER) == ([], [])


def test_it_fires_anew_with_a_new_beginning() -> None:
    beyond, within = CASES["worker-lost/w"]
    watch = AlertTracker(RULES)
    known = rounds(watch, within, rounds(watch, beyond, {}, 1), 1)
    assert rounds(watch, beyond, known, 1, LATER)["worker-lost/w"]["since"] == LATER


def test_what_is_over_for_an_hour_or_too_many_is_forgotten() -> None:
    beyond, within = CASES["worker-lost/w"]
    watch = AlertTracker(RULES)
    known = rounds(watch, within, rounds(watch, beyond, {}, 1), 1)
    assert list(rounds(watch, within, known, 1, "2030-01-01T12:59:59.000Z")) == ["worker-lost/w"]
    assert rounds(watch, within, known, 1, "2030-01-01T13:00:01.000Z") == {}
    many = {f"x/{n}": {**known["worker-lost/w"], "id": f"x/{n}"} for n in range(alerts.MOST_KEPT + 7)}
    assert len(rounds(watch, within, many, 1)) == alerts.MOST_KEPT


def test_firing_ones_are_shown_first() -> None:
    rows: list[Any] = [
        {"id": "a", "state": "resolved", "since": "1", "until": "5"},
        {"id": "b", "state": "firing", "since": "2", "until": None},
        {"id": "c", "state": "resolved", "since": "3", "until": "6"},
        {"id": "d", "state": "firing", "since": "4", "until": None},
    ]
    assert [alert["id"] for alert in alerts.sort_alerts(rows)] == ["d", "b", "c", "a"]


def test_thresholds_are_settings() -> None:
    rules = alerts.rules(Settings(alert_queue_wait_seconds=5, alert_redis_memory_ratio=0.5))
    assert (rules["queue-wait"].threshold, rules["redis-memory"].threshold) == (5, 0.5)
    facts = Facts(queues=[queue("any.high", 1, 6)])
    assert not AlertTracker(RULES).update({}, alerts.evaluate(facts), NOW)[0]
    assert [alert["threshold"] for alert in AlertTracker(rules).update({}, alerts.evaluate(facts), NOW)[0]] == [5]
