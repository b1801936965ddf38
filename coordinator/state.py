"""State that all routes of one coordinator share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # domains import this module, so importing them here would be a cycle
    from starlette.requests import HTTPConnection

    from coordinator.attachments.wakeups import Wakes
    from coordinator.cluster import Cluster
    from coordinator.destinations import Guard
    from coordinator.logs.live import Live
    from coordinator.logs.texts import Texts
    from coordinator.schedules.runs import Runs
    from coordinator.server.bodies import BodyMemory
    from coordinator.services.gateway.gateway import Gateway
    from coordinator.services.gateway.tunnels import Tunnels
    from coordinator.services.pages.page_names import PageNames
    from coordinator.work.inputs import Inputs
    from coordinator.work.polls import Polls
    from coordinator.workflows.engine import Engine


@dataclass(frozen=True, kw_only=True)
class State:
    """Objects that the routes of one coordinator share."""

    cluster: Cluster
    #: Memory budgets for request bodies.
    body_memory: BodyMemory
    file_body_memory: BodyMemory
    workflow_body_memory: BodyMemory
    worker_body_memory: BodyMemory
    #: Addresses to which webhooks can be sent.
    guard: Guard
    #: Objects for workflows and schedules.
    engine: Engine
    runs: Runs
    #: Requests to services, tunnels to runners, and host names of service pages.
    gateway: Gateway
    tunnels: Tunnels
    page_names: PageNames
    #: Logs, attachments, worker polls and input files of jobs.
    texts: Texts
    live: Live
    wakes: Wakes
    polls: Polls
    inputs: Inputs


def shared_state(connection: HTTPConnection) -> State:
    """Return the state of the coordinator that serves this request or WebSocket."""
    return cast("State", connection.app.state.coordinator)
