"""The peer of P7: the same trivial job as a Celery task; run by `python -m celery -A benchmarks.celery_peer worker`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from jobs.kinds import registry
from jobs.models import Device

_url = os.environ.get("CELERY_REDIS_URL", "redis://127.0.0.1:6379/1")
app = Celery("peer", broker=_url, backend=_url)
app.conf.update(task_serializer="json", result_serializer="json", accept_content=["json"])


@worker_process_init.connect
def warm(**_: Any) -> None:
    registry.kernel("collatz", Device.CPU).warm()


@app.task
def statistics(parameters: dict[str, Any]) -> dict[str, Any]:
    definition = registry.definition("collatz")
    plan = definition.plan(definition.Parameters.model_validate(parameters))
    _, partial = registry.kernel("collatz", Device.CPU).run(plan.spec, 0, plan.total, lambda upto: True)
    return definition.result(plan.spec, partial)
