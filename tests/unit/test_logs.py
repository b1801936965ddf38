"""Tests log lines that processes really write."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from typing import Any

WRITES = """
import logging, structlog
from jobs import logs
logs.configure("info", "cpu-worker", host="h", worker="w")
logging.getLogger("jobs.worker.lane_loop").info("job done", extra={"job_id": "j1", "status": "done"})
structlog.get_logger("coordinator.app").info("request", status=200, duration_seconds=0.25, job_id="j2")
logging.getLogger("redis").debug("below the level")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("x").exception("it failed: %s", "why")
"""


def lines(program: str) -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_no_line_has_the_secret_of_a_token_that_somebody_put_into_a_path() -> None:
    secret = "x-" * 20 + "abc"
    program = WRITES.partition("logging.getLogger")[0] + (
        f"structlog.get_logger('coordinator.app').info('request', path='/api/tokens/tc_0123456789_{secret}')\n"
        f"logging.getLogger('x').warning('refused: %s', 'ts_0123456789_{secret}; next')\n"
    )
    request, refused = lines(program)
    assert request["path"] == "/api/tokens/tc_0123456789_..."
    assert refused["message"] == "refused: ts_0123456789_...; next"


def test_a_line_has_the_common_fields_first_and_the_known_ones_by_their_names() -> None:
    done, request, failed = lines(WRITES)
    for line in (done, request, failed):
        assert list(line)[:5] == ["timestamp", "level", "component", "message", "host"]
        assert line["timestamp"].endswith("Z") and datetime.fromisoformat(line["timestamp"])
        assert (line["component"], line["host"], line["worker"]) == ("cpu-worker", "h", "w")
        assert not {"event", "job_id", "service"} & line.keys()
    assert (done["level"], done["message"], done["task_id"], done["status"]) == ("info", "job done", "j1", "done")
    assert (request["task_id"], request["status"], request["duration_seconds"]) == ("j2", 200, 0.25)
    assert failed["level"] == "error" and failed["message"] == "it failed: why"
    assert "ZeroDivisionError" in failed["exception"]


def test_a_name_that_is_known_later_stands_on_the_lines_of_every_thread_from_then_on() -> None:
    program = WRITES.partition("logging.getLogger")[0] + (
        "import threading\n"
        "log = logging.getLogger('x')\n"
        "log.info('before')\n"
        "logs.bind(worker='runner-1')\n"
        "log.info('here')\n"
        "threading.Thread(target=log.info, args=('there',)).start()\n"
    )
    assert [(line["message"], line["worker"]) for line in lines(program)] == [
        ("before", "w"),
        ("here", "runner-1"),
        ("there", "runner-1"),
    ]


def test_a_line_that_is_written_at_little_cost_is_the_one_that_its_logger_writes() -> None:
    fields = (
        "path='/api/tokens/tc_0123456789_' + 'x' * 43, job_id='j\\u00e9', duration_seconds=0.25, status=200,"
        " other=None, name='chat'"
    )
    program = WRITES.partition("logging.getLogger")[0] + (
        f"structlog.get_logger('coordinator').info('request', {fields})\n"
        f"logs.info('coordinator', 'request', {fields})\n"
        "logging.getLogger().setLevel('WARNING')\n"
        "logs.info('coordinator', 'unheard')\n"
        "logging.getLogger('coordinator').warning('heard')\n"
    )
    one, other, last = lines(program)
    assert last["message"] == "heard" and datetime.fromisoformat(other["timestamp"])
    first = ["timestamp", "level", "component", "message", "host", "task_id", "duration_seconds", "status"]
    assert list(one)[:8] == list(other)[:8] == first
    assert len(one.pop("timestamp")) == len(other.pop("timestamp"))
    assert one == other and other["path"] == "/api/tokens/tc_0123456789_..."


def test_a_program_that_has_not_said_how_it_logs_writes_the_line_all_the_same() -> None:
    program = "from jobs import logs\nlogs.info('x', 'a request', status=200)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a request" in done.stdout + done.stderr
