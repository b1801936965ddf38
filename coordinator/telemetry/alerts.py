"""Alerts of a cluster without Prometheus, evaluated every second by the leading coordinator. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from coordinator.fleet import hosts
from coordinator.jobs import scheduler
from jobs import queues
from jobs.models import Device, Priority
from jobs.settings import Settings
from threads_protocol.answers import fleet as fleet_answers
from threads_protocol.answers import telemetry as telemetry_answers

#: Seconds for which resolved alerts are kept.
#: Maximum number of resolved alerts.
KEPT_SECONDS, MOST_KEPT = 3600.0, 200


@dataclass(frozen=True, kw_only=True)
class Rule:
    severity: str
    #: Value above which the alert fires.
    threshold: float
    unit: str
    #: Number of consecutive rounds, about one per second, above the threshold before the alert fires.
    rounds: int = 1


def rules(settings: Settings) -> dict[str, Rule]:
    """Return the alert rules by name, with the thresholds from the settings."""
    return {
        "no-worker": Rule(severity="critical", threshold=0, unit="jobs", rounds=3),
        "queue-wait": Rule(severity="warning", threshold=settings.alert_queue_wait_seconds, unit="seconds"),
        "interactive-wait": Rule(severity="warning", threshold=settings.alert_interactive_wait_seconds, unit="seconds"),
        "jobs-failed": Rule(severity="warning", threshold=0, unit="jobs"),
        "worker-lost": Rule(severity="warning", threshold=0, unit="workers"),
        "heartbeat-late": Rule(severity="warning", threshold=settings.alert_heartbeat_seconds, unit="seconds"),
        "kind-refused": Rule(severity="critical", threshold=0, unit="workers"),
        "gpu-cordoned": Rule(severity="warning", threshold=0, unit="GPUs", rounds=3),
        "clock-offset": Rule(severity="warning", threshold=0.5, unit="seconds", rounds=10),
        "redis-memory": Rule(severity="critical", threshold=settings.alert_redis_memory_ratio, unit="ratio", rounds=5),
        "broken": Rule(severity="warning", threshold=0, unit="entries"),
        "audit-file": Rule(severity="warning", threshold=5, unit="seconds", rounds=60),
    }


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts that the rules evaluate. Workers and queues have the form of the API's responses."""

    workers: Sequence[fleet_answers.Worker] = ()
    queues: Sequence[fleet_answers.Queue] = ()
    fleet: scheduler.Fleet = field(default_factory=scheduler.Fleet)
    #: Number of jobs that failed within the last hour, by kind.
    failed: Mapping[str, int] = field(default_factory=dict)
    #: Memory usage of Redis relative to its limit, or None if there is no limit.
    memory: float | None = None
    #: Number of jobs and keys in Redis that cannot be read.
    broken: int = 0
    #: Age in seconds of the oldest entry of the audit log that is not in AUDIT_FILE.
    unexported_seconds: float = 0.0
    #: Seconds after which the alert for a lost worker is resolved.
    lost_seconds: float = 600.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Value of an alert rule for one worker, queue or other subject, to be compared with the rule's threshold."""

    rule: str
    subject: str
    value: float
    text: str

    @property
    def id(self) -> str:
        return f"{self.rule}/{self.subject}" if self.subject else self.rule


def evaluate(facts: Facts) -> list[Finding]:
    """Return the values of all rules and subjects."""
    findings = [*_queues(facts), *_workers(facts.workers, facts.lost_seconds), *_clocks(facts.workers)]
    for kind, count in facts.failed.items():
        jobs = "job" if count == 1 else "jobs"
        text = f"{count} {kind} {jobs} failed within the hour; see the errors with: cluster jobs --state failed"
        findings.append(Finding(rule="jobs-failed", subject=kind, value=count, text=text))
    text = f"{facts.broken} jobs or keys in Redis cannot be read; see docs/operations.md#brokenfound"
    findings.append(Finding(rule="broken", subject="", value=facts.broken, text=text))
    text = (
        f"AUDIT_FILE has lacked entries of the audit log for {facts.unexported_seconds:.0f} s; see the coordinators' "
        "logs and docs/operations.md#auditfilebehind"
    )
    findings.append(Finding(rule="audit-file", subject="", value=round(facts.unexported_seconds, 1), text=text))
    if facts.memory is not None:
        text = f"Redis uses {facts.memory:.0%} of its memory; at 100 % it rejects new jobs. Delete finished jobs"
        findings.append(Finding(rule="redis-memory", subject="", value=round(facts.memory, 3), text=text))
    return findings


def _queues(facts: Facts) -> Iterable[Finding]:
    for row in facts.queues:
        queue, jobs, oldest = row["queue"], row["jobs"], row["oldest_wait_seconds"]
        if scheduler.estimate_wait(queue, facts.fleet) is None:
            device = Device(queue.partition(".")[0])
            which = "worker" if device is Device.ANY else f"{device} worker"
            wait = "1 job is waiting" if jobs == 1 else f"{jobs} jobs are waiting"
            text = f"{wait} in {queue}, but no {which} is live; start one, or cancel the waiting jobs"
            if facts.fleet.knows(queue):
                text = f"{wait} in {queue}: {scheduler.explain_unserved(queue, facts.fleet)}"
            yield Finding(rule="no-worker", subject=queue, value=jobs, text=text)
        if queues.priority_of(queue) is not Priority.LOW:  # low-priority jobs can wait
            rule = "interactive-wait" if queues.priority_of(queue) is Priority.INTERACTIVE else "queue-wait"
            advice = "add workers, or submit less urgent jobs with priority low"
            text = f"the oldest job in {queue} has waited {oldest:.0f} s; {advice}"
            yield Finding(rule=rule, subject=queue, value=oldest if jobs else 0.0, text=text)


def _workers(workers: Sequence[fleet_answers.Worker], lost_seconds: float) -> Iterable[Finding]:
    for worker in workers:
        name, seen = worker["id"], worker["seen_seconds_ago"]
        lost = worker["state"] == "lost" and seen < lost_seconds
        text = f"worker {name} died or cannot reach Redis; other workers continue its work. See its log"
        yield Finding(rule="worker-lost", subject=name, value=float(lost), text=text)
        late = seen if worker["live"] else 0.0
        text = f"the last heartbeat of worker {name} was {late:.1f} s ago; workers send one every second"
        yield Finding(rule="heartbeat-late", subject=name, value=late, text=text)
        refused = worker.get("refused", "") if worker["live"] else ""
        text = f"worker {name} takes no work of {refused}; see docs/operations.md#kind-refused"
        yield Finding(rule="kind-refused", subject=name, value=float(bool(refused)), text=text)
        sick = worker["live"] and worker["device"] == Device.GPU and worker.get("cordoned")
        text = f"the GPU of worker {name} receives no work: {sick}; see docs/operations.md#gpucordoned"
        yield Finding(rule="gpu-cordoned", subject=name, value=float(bool(sick)), text=text)


def _clocks(workers: Sequence[fleet_answers.Worker]) -> Iterable[Finding]:
    for host, live in hosts.by_host(worker for worker in workers if worker["live"]).items():
        offset = hosts.clock_offset(live) or 0.0
        where = "ahead of" if offset > 0 else "behind"
        text = f"the clock of host {host} is {abs(offset):.1f} s {where} the Redis clock; synchronize it with NTP"
        yield Finding(rule="clock-offset", subject=host, value=abs(offset), text=text)


Alert = telemetry_answers.Alert


class AlertTracker:
    """Turns the values of alert rules into alerts that fire and are resolved.

    Known alerts can come from another leader.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        #: Number of consecutive rounds in which each value exceeded its threshold.
        self._streaks: dict[str, int] = {}

    def update(
        self, known: Mapping[str, Alert], findings: Sequence[Finding], now: str
    ) -> tuple[list[Alert], list[str]]:
        """Return new or changed alerts, and the IDs of alerts to delete. `now` is a timestamp in API format."""
        beyond = {finding.id: finding for finding in findings if self._exceeds_threshold(finding)}
        self._streaks = {name: self._streaks.get(name, 0) + 1 for name in beyond}
        changed = [
            alert for finding in beyond.values() if (alert := self._update_alert(known.get(finding.id), finding, now))
        ]
        over = [alert for name, alert in known.items() if alert["state"] == "firing" and name not in beyond]
        changed += [{**alert, "state": "resolved", "until": now} for alert in over]
        return changed, _expired_alerts({**known, **{alert["id"]: alert for alert in changed}}, now)

    def _exceeds_threshold(self, finding: Finding) -> bool:
        return finding.value > self._rules[finding.rule].threshold

    def _update_alert(self, known: Alert | None, finding: Finding, now: str) -> Alert | None:
        """Return the firing alert, or None if it has not changed or must not fire yet."""
        fires = known is not None and known["state"] == "firing"
        rule = self._rules[finding.rule]
        if not fires and self._streaks[finding.id] < rule.rounds:
            return None
        alert: telemetry_answers.Alert = {
            "id": finding.id,
            "rule": finding.rule,
            "subject": finding.subject,
            "severity": rule.severity,
            "state": "firing",
            "since": known["since"] if known is not None and fires else now,
            "until": None,
            "value": finding.value,
            "threshold": rule.threshold,
            "unit": rule.unit,
            "text": finding.text,
        }
        return None if alert == known else alert


def _expired_alerts(alerts: Mapping[str, Alert], now: str) -> list[str]:
    """Return the IDs of resolved alerts that are too old or too many."""
    resolved = sorted((alert["until"] or "", name) for name, alert in alerts.items() if alert["state"] == "resolved")
    limit = _subtract_seconds(now, KEPT_SECONDS)
    surplus = len(resolved) - MOST_KEPT
    return [name for place, (until, name) in enumerate(resolved) if until < limit or place < surplus]


def _subtract_seconds(moment: str, seconds: float) -> str:
    earlier = datetime.fromisoformat(moment) - timedelta(seconds=seconds)
    return earlier.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sort_alerts(alerts: Sequence[Alert]) -> list[Alert]:
    """Return the alerts, firing ones first, and each group sorted by time, newest first."""
    firing = [alert for alert in alerts if alert["state"] == "firing"]
    resolved = [alert for alert in alerts if alert["state"] != "firing"]
    newest = sorted(firing, key=lambda alert: alert["since"], reverse=True)
    return newest + sorted(resolved, key=lambda alert: alert["until"] or "", reverse=True)
