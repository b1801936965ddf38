"""P7's job as a Celery task; run by `python -m celery -A benchmarks.peers.celery_peer worker`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from benchmarks.peers import peer_task

_url = os.environ.get("CELERY_REDIS_URL", "redis://127.0.0.1:6379/1")
app = Celery("peer", broker=_url, backend=_url)
app.conf.update(task_serializer="json", result_serializer="json", accept_content=["json"])


@worker_process_init.connect
def warm(**_: Any) -> None:
    peer_task.warm()


@app.task
def statistics(parameters: dict[str, Any]) -> dict[str, Any]:
    return peer_task.compute(parameters)
