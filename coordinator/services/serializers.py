"""Build the API's responses about services."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from coordinator import decoding
from coordinator.services import planning, scaling, usage_statistics
from engines import registry
from jobs.store.services import RecentUsage, Replica, Service
from threads_protocol.answers import services as answers
from threads_protocol.states import TERMINAL

#: States of replicas, the best state first.
STATES = ("ready", "unhealthy", "starting", "waiting", "stopping", "dead")


def serialize_service(
    service: Service,
    replicas: Sequence[Replica],
    waits: Mapping[str, str],
    lately: RecentUsage,
    now: int,
    unreached: Mapping[str, str],
) -> answers.Service:
    """Serialize a service for the API.

    `waits` contains waiting reasons by job ID. `unreached` contains reasons why this coordinator cannot reach ready
    replicas. `now` is Redis time in milliseconds.
    """
    rows = [_serialize_replica(one, waits, unreached) for one in replicas]
    states = [row["state"] for row in rows]
    state = min(states, key=STATES.index) if states else "waiting"
    if service.stopped:
        state = "stopping" if rows else "stopped"
    elif not rows and scaling.asleep(service, now):
        state = "asleep"
    return {
        "name": service.name,
        "tenant": service.tenant,
        "engine": service.engine,
        "model": json.loads(service.asked).get("model"),
        "state": state,
        "replicas": scaling.wanted(service, now),
        "ready": sum(map(planning.is_ready, replicas)),
        "requests": service.demand,
        "created": decoding.format_ms(service.created),
        "failures": service.failures,
        "next_start": decoding.format_ms(service.retry_at) if service.retry_at > now else None,
        "last_failure": service.said or None,
        "running": rows,
        "last_minute": usage_statistics.row(lately),
        "page": bool(registry.page(service.engine)),
    }


def serialize_details(
    service: Service,
    replicas: Sequence[Replica],
    waits: Mapping[str, str],
    lately: RecentUsage,
    now: int,
    unreached: Mapping[str, str],
) -> answers.Service:
    """Serialize a service with its specification."""
    row = serialize_service(service, replicas, waits, lately, now, unreached)
    return {**row, "asked": json.loads(service.asked), "last_dead_job_id": service.died or None}


def _serialize_replica(
    replica: Replica, waits: Mapping[str, str], unreached: Mapping[str, str]
) -> answers.ServiceReplica:
    report, state = replica.report, state_of(replica)
    because = waits.get(replica.job_id) if state == "waiting" else report.why if report else None
    if state == "ready" and (why := unreached.get(replica.job_id)):
        because = f"this coordinator cannot reach it: {why}"
    return {
        "job_id": replica.job_id,
        "state": state,
        "because": because or None,
        "worker": report.worker if report else None,
        "host": report.host if report else None,
        "generation": replica.generation,
        "since": decoding.format_ms(replica.since),
        "requests": replica.busy,
        "devices": list(report.devices) if report and report.devices is not None else None,
        "memory_bytes": report.memory_bytes if report else None,
    }


def state_of(replica: Replica) -> str:
    """Return the API's state of a replica."""
    if replica.job_state in TERMINAL:
        return "dead"
    if replica.stopping or replica.job_state == "cancelling":
        return "stopping"
    if replica.job_state in ("running", "finishing"):
        return replica.report.state if replica.report else "starting"
    return "waiting"
