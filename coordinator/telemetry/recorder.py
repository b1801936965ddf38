"""Record the cluster's history, alerts and spans of work every second on the leading coordinator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from coordinator.decoding import format_seconds
from coordinator.fleet import hosts, serializers
from coordinator.fleet.scaler import Scaler
from coordinator.queries import Queries
from coordinator.telemetry import alerts, history
from jobs.hosts import measurements
from jobs.hosts.measurements import Measurement
from jobs.kinds import registry
from jobs.store import unreadable_entries
from jobs.store.telemetry import Memory
from threads_protocol.answers import fleet as answers

Figures = Iterator[tuple[str, float]]
#: Precision in bytes of recorded sizes. Smaller changes are not visible and compress badly.
_STEP_BYTES = 1 << 20
#: Maximum interval in seconds over which a counter's rate is calculated.
_GAP_SECONDS = 5.0
#: Number of rounds between two runs of slow work: storing spans, counting failed jobs, calculating desired workers.
_SLOW_EVERY = 5
#: Maximum number of failed jobs to read, newest first.
_FAILED_LOOK = 500
_HOUR = 3600.0


class Speeds:
    """Calculates the rates of counters."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def rate(self, name: str, count: float, now: float) -> float | None:
        """Return the rate per second since the last call. Return None for the first call, after a gap, or after a
        reset.
        """
        before, since = self._last.get(name, (count, -_GAP_SECONDS))
        self._last[name] = (count, now)
        gap = now - since
        return (count - before) / gap if 0 < gap < _GAP_SECONDS and count >= before else None


class Recorder:
    """Records the history and alerts of the cluster. Only the leader calls `run_once`."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._store = queries.store
        self._speeds = Speeds()
        self._alerts = alerts.AlertTracker(alerts.rules(queries.settings))
        self._scaler = Scaler(queries.store, queries.settings)
        self._rounds = 0
        self._failed: dict[str, int] = {}

    def run_once(self) -> None:
        """Record a sample and the changed alerts. Every _SLOW_EVERY rounds, also calculate the desired workers."""
        slow = self._rounds % _SLOW_EVERY == 0
        self._rounds += 1
        if slow:
            self._do_slow_work()
        workers, queues = self._queries.fleet.workers(), self._queries.fleet.queues()
        memory = self._store.telemetry.memory()
        now, units = self._store.telemetry.units()
        self._sample(workers, queues, units, memory.used, now)
        self._update_alerts(workers, queues, memory, now)
        if slow:
            self._scaler.update(workers)

    def _do_slow_work(self) -> None:
        self._store.telemetry.put_spans_away()
        self._failed = self._failures()

    def _sample(
        self,
        workers: Sequence[answers.Worker],
        queues: Sequence[answers.Queue],
        units: Mapping[str, int],
        memory: int,
        now: float,
    ) -> None:
        live = [worker for worker in workers if worker["live"]]
        figures_now = {
            **dict(self._cluster(live, queues)),
            **dict(self._units(units, now)),
            **dict(self._workers(live)),
            **dict(self._hosts(live, now)),
            "redis.memory": _round_count(memory),
        }
        history.append(
            self._store, int(now), {name: history.round_digits(value) for name, value in figures_now.items()}
        )

    def _cluster(self, live: Sequence[answers.Worker], queues: Sequence[answers.Queue]) -> Figures:
        yield "workers.live", len(live)
        yield "lanes.total", sum(worker["lanes"] for worker in live)
        yield "lanes.busy", sum(worker["busy_lanes"] for worker in live)
        yield "wait.oldest", max(row["oldest_wait_seconds"] for row in queues)
        for row in queues:
            yield f"queue.{row['queue']}", row["jobs"]
        for state, count in self._queries.jobs.counts().items():
            yield f"jobs.{state}", count

    def _units(self, units: Mapping[str, int], now: float) -> Figures:
        totals = Counter(dict.fromkeys(registry.names(), 0))  # start at zero to include a kind's first units
        for field, count in units.items():
            totals[field.partition("|")[0]] += count
        for kind, total in totals.items():
            speed = self._speeds.rate(f"units.{kind}", total, now)
            if speed is not None:
                yield f"units.{kind}", speed

    def _workers(self, live: Sequence[answers.Worker]) -> Figures:
        for worker in live:
            yield f"worker.{worker['id']}.busy_lanes", worker["busy_lanes"]
            for gpu in map(serializers.as_mapping, worker.get("gpus", ())):
                for figure in measurements.GPU:
                    if figure.history and gpu.get(figure.field) is not None:
                        yield f"gpu.{gpu['uuid']}.{figure.history}", _encode_value(figure, gpu[figure.field])

    def _hosts(self, live: Sequence[answers.Worker], now: float) -> Figures:
        named = [worker for worker in live if worker["host"]]
        for figure in measurements.HOST:
            reports = hosts.latest_workers(named, figure.metric.labels) if figure.history else {}
            known = {place: row[figure.field] for place, row in reports.items() if figure.field in row}
            for host, value in self._host_rates(figure, known, now) if figure.counts else _gauges(figure, known):
                yield f"host.{host}.{figure.history}", value

    def _host_rates(self, figure: Measurement, counts: Mapping[tuple[str, ...], float], now: float) -> Figures:
        """Yield the rates of a host's counters, summed over its networks."""
        totals: dict[str, float] = {}
        for place, count in counts.items():
            speed = self._speeds.rate(" ".join((figure.field, *place)), count, now)
            if speed is not None:
                totals[place[0]] = totals.get(place[0], 0.0) + speed
        yield from ((host, float(f"{total:.3g}")) for host, total in totals.items())

    def _failures(self) -> dict[str, int]:
        """Count the jobs that failed within the last hour, by kind."""
        since = (self._store.clock.now() - _HOUR) * 1000
        kinds = unreadable_entries.readable(
            "job",
            self._store.telemetry.failed(_FAILED_LOOK),
            lambda _, row: row[1].decode() if int(row[0] or 0) > since else "",
        )
        return dict(Counter(kind for kind in kinds if kind))

    def _update_alerts(
        self, workers: Sequence[answers.Worker], queues: Sequence[answers.Queue], memory: Memory, now: float
    ) -> None:
        facts = alerts.Facts(
            workers=workers,
            queues=queues,
            fleet=self._queries.fleet_cache.get(),
            failed=self._failed,
            memory=memory.used / memory.limit if memory.limit else None,
            broken=self._store.telemetry.broken(),
            unexported_seconds=self._queries.audit.unexported_seconds(),
            lost_seconds=self._queries.settings.alert_worker_lost_seconds,
        )
        known = {alert["id"]: alert for alert in self._queries.telemetry.alerts()}
        changed, gone = self._alerts.update(known, alerts.evaluate(facts), format_seconds(now))
        self._store.telemetry.write_alerts({alert["id"]: json.dumps(alert) for alert in changed}, gone)


def _gauges(figure: Measurement, values: Mapping[tuple[str, ...], float]) -> Figures:
    yield from ((place[0], _encode_value(figure, value)) for place, value in values.items())


def _encode_value(figure: Measurement, value: float) -> float:
    return _round_count(value) if figure.unit == "bytes" else value


def _round_count(count: float) -> int:
    return round(count / _STEP_BYTES) * _STEP_BYTES
