"""Tests the times of schedules across clock changes, schedules over HTTP, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from coordinator.access.principal import Principal, Scope
from coordinator.schedules import routes, times
from coordinator.schedules.runs import AT_ONCE, Runs
from coordinator.schedules.times import Times
from jobs import errors
from jobs.store import keys
from jobs.store.schedules import Schedule
from tests.unit.test_webhooks import Api

BERLIN = ZoneInfo("Europe/Berlin")
JOB = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}}


def runs(cron: str, after: datetime, count: int) -> list[str]:
    found = Times(cron=cron, timezone="Europe/Berlin").all_after(int(after.timestamp()))
    return [f"{datetime.fromtimestamp(at, BERLIN):%d %H:%M %Z}" for at in islice(found, count)]


@pytest.mark.parametrize(
    ("cron", "after", "wanted"),
    [
        # On 2026-03-29, 02:00 is followed by 03:00. A skipped time runs at the end of the gap.
        ("30 2 * * *", (2026, 3, 28, 12), ["29 03:00 CEST", "30 02:30 CEST"]),
        ("0 3 * * *", (2026, 3, 28, 12), ["29 03:00 CEST", "30 03:00 CEST"]),
        ("*/30 * * * *", (2026, 3, 29, 1, 10), ["29 01:30 CET", "29 03:00 CEST", "29 03:30 CEST"]),
        ("0 * * * *", (2026, 3, 29, 0, 30), ["29 01:00 CET", "29 03:00 CEST", "29 04:00 CEST"]),
        # On 2026-10-25, 02:00 to 03:00 occurs twice. A fixed time runs once.
        ("30 2 * * *", (2026, 10, 24, 12), ["25 02:30 CEST", "26 02:30 CET"]),
        ("*/30 2 * * *", (2026, 10, 25, 1), ["25 02:00 CEST", "25 02:30 CEST", "25 02:00 CET", "25 02:30 CET"]),
        ("0 * * * *", (2026, 10, 25, 1, 30), ["25 02:00 CEST", "25 02:00 CET", "25 03:00 CET"]),
    ],
)
def test_a_change_of_clocks_leaves_out_no_run_and_makes_none_twice(
    cron: str, after: tuple[int, ...], wanted: list[str]
) -> None:
    assert runs(cron, datetime(*after, tzinfo=BERLIN), len(wanted)) == wanted  # type: ignore[arg-type, misc]


def test_from_within_the_hour_that_comes_twice_nothing_is_in_the_past() -> None:
    second_pass = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)
    for cron, wanted in (("30 2 * * *", "26 02:30 CET"), ("0 3 * * *", "25 03:00 CET"), ("0 * * * *", "25 03:00 CET")):
        assert runs(cron, second_pass, 1) == [wanted]


def test_seconds_are_counted_from_the_beginning_whatever_clocks_do() -> None:
    every = Times(every=3600, anchor=1000)
    assert list(islice(every.all_after(1000), 3)) == [4600, 8200, 11800]
    assert (every.after(4599), every.after(4600)) == (4600, 8200)
    assert every.passed(4600, 4600) == (1, 4600, 8200) and every.passed(4600, 15_399) == (3, 11800, 15400)


def test_times_that_passed_are_counted_by_cron_as_by_seconds() -> None:
    hourly = Times(cron="0 * * * *")
    assert hourly.passed(3600, 3600) == (1, 3600, 7200)
    assert hourly.passed(3600, 3600 * 100 + 5) == (100, 360_000, 363_600)
    years = Times(cron="* * * * *").passed(60, 60 * 1_000_000)
    assert years[0] == times.MOST_MISSED + 1 and years[2] == 60 * 1_000_001


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@daily", "five fields"),
        ("60 * * * *", "bad minute"),
        ("0 0 31 2 *", "day"),
        ("R * * * *", "bad minute"),
        ("* * * * 9", "day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("\N{ARABIC-INDIC DIGIT THREE} * * * *", "bad minute"),
    ],
)
def test_what_is_no_cron_expression_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        times.check_cron(text)


@pytest.mark.parametrize("name", ["", "Europe", "Europe/Nowhere", "../../etc/passwd", "/etc/passwd", "localtime", "\0"])
def test_what_is_no_timezone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        times.zone(name)


@pytest.fixture
def api(any_redis_url: str) -> Iterator[Api]:
    api = Api(any_redis_url)
    yield api
    api.store.client.close()


def add(api: Api, name: str = "it", token: str = "", **more: Any) -> Any:
    body = {"name": name, "every_seconds": 60, "job": JOB, **more}
    return api.ask("POST", "/api/schedules", {k: v for k, v in body.items() if v is not None}, **_by(token))


def _by(token: str) -> dict[str, str]:
    return {"token": token} if token else {}


def test_a_schedule_is_added_shown_paused_run_and_deleted(api: Api) -> None:
    made = add(api)
    assert made.status_code == 201, made.text
    row = made.json()
    assert len(row["next_runs"]) == 5 and row["job"] == JOB and (row["state"], row["type"]) == ("active", "collatz")
    assert add(api).status_code == 409
    assert [one["name"] for one in api.ask("GET", "/api/schedules").json()["schedules"]] == ["it"]
    assert api.ask("POST", "/api/schedules/it/pause").json()["state"] == "paused"
    assert api.ask("GET", "/api/schedules/it").json()["next_runs"] == []
    assert api.ask("POST", "/api/schedules/it/resume").json()["state"] == "active"
    job = api.ask("POST", "/api/schedules/it/run").json()["job_id"]
    assert api.ask("GET", f"/api/jobs/{job}").json()["state"] == "queued"
    refused = api.ask("POST", "/api/schedules/it/run")
    assert refused.status_code == 409 and job in refused.text
    row = api.ask("GET", "/api/schedules/it").json()
    assert (row["submitted"], row["last_job_id"], row["last_outcome"]) == (1, job, "submitted by hand")
    assert api.ask("DELETE", "/api/schedules/it").status_code == 204
    for method, path in (("DELETE", "it"), ("GET", "it"), ("POST", "it/run"), ("POST", "it/pause")):
        assert api.ask(method, f"/api/schedules/{path}").status_code == 404
    logged = [line for line in api.ask("GET", "/api/audit?after=0").json()["lines"] if "schedule" in line]
    assert [line.split('"action":"')[1].split('"')[0] for line in logged] == [
        "add schedule",
        "pause schedule",
        "resume schedule",
        "delete schedule",
    ]


@pytest.mark.parametrize(
    ("given", "field", "why"),
    [
        ({"every_seconds": None}, "every_seconds", "set either"),
        ({"cron": "0 3 * * *"}, "every_seconds", "set either"),
        ({"every_seconds": 9}, "every_seconds", "10"),
        ({"every_seconds": 10**9}, "every_seconds", "31622400"),
        ({"every_seconds": None, "cron": "x"}, "cron", "five fields"),
        ({"every_seconds": None, "cron": "0 3 * * *", "timezone": "Mars/Base"}, "timezone", "Europe/Berlin"),
        ({"catch_up": "all"}, "catch_up", "'last' or 'none'"),
        ({"name": "a/b"}, "name", ""),
        ({"name": "x" * 65}, "name", ""),
        ({"job": None}, "job", "set either"),
        ({"workflow": "name: x"}, "job", "set either"),
        ({"job": None, "workflow": "name: [\n"}, "workflow", ":"),
        ({"job": None, "workflow": "x" * 65_537}, "workflow", "65536"),
        ({"job": {"type": "nothing"}}, "job.type", "nothing"),
        ({"job": {**JOB, "idempotency_key": "k"}}, "job.idempotency_key", "must be omitted"),
        ({"job": {**JOB, "parameters": {"start_number": 0}}}, "job.parameters.start_number", "1"),
        ({"job": {**JOB, "notify": "http://10.0.0.1/"}}, "job.notify", "private"),
        ({"more": 1}, "more", "not a known field"),
    ],
)
def test_a_wrong_schedule_is_refused_by_field_and_nothing_is_stored(
    api: Api, given: dict[str, Any], field: str, why: str
) -> None:
    answer = add(api, **given)
    assert answer.status_code == 422 and answer.json()["field"] == field and why in answer.text, answer.text
    assert api.store.client.zcard(keys.SCHEDULES) == 0


def test_a_schedule_of_a_workflow_is_validated_run_and_shown_with_the_state_of_the_last(api: Api) -> None:
    text = "name: nightly\nactions:\n  - {action_id: ok, action_type: approve}\n"
    wrong = add(api, job=None, workflow=text.replace("approve", "aprove") + "  - {}\n")
    assert wrong.status_code == 422 and wrong.json()["field"] == "workflow"
    assert [(one["line"], one["field"]) for one in wrong.json()["problems"]] == [(3, "action_type"), (4, "action_id")]
    row = add(api, job=None, workflow=text).json()
    assert (row["type"], row["workflow"], row["last_workflow_id"]) == ("workflow", text, None) and "job" not in row
    started = api.ask("POST", "/api/schedules/it/run").json()
    name = started["workflow_id"]
    assert started["job_id"] is None and api.ask("GET", f"/api/workflows/{name}").json()["name"] == "nightly"
    [row] = api.ask("GET", "/api/schedules").json()["schedules"]
    assert (row["last_workflow_id"], row["last_workflow_state"], row["last_job_id"]) == (name, "running", None)
    refused = api.ask("POST", "/api/schedules/it/run")
    assert refused.status_code == 409 and f"workflow {name}" in refused.text
    assert api.ask("POST", f"/api/workflows/{name}/cancel").status_code == 200
    assert api.ask("GET", "/api/schedules/it").json()["last_workflow_state"] == "cancelling"


def test_a_schedule_of_a_workflow_needs_the_scope_run_for_programs(api: Api) -> None:
    text = "name: x\nactions:\n  - {action_id: a, action_type: command, command: [date]}\n"
    assert add(api, job=None, workflow=text, token=api.token("submit", "read")).status_code == 403
    assert add(api, job=None, workflow=text, token=api.token("submit", "read", "run")).status_code == 201


def test_schedules_are_their_tenants_and_need_the_scope_submit(api: Api) -> None:
    api.ask("PUT", "/api/tenants/a", {})
    mine, theirs, reader = api.token("submit", "read", tenant="a"), api.token("submit", "read"), api.token("read")
    assert add(api, token=mine).json()["tenant"] == "a"
    assert add(api, token=reader).status_code == 403
    for token in (theirs, reader):
        assert api.ask("GET", "/api/schedules", token=token).json() == {"schedules": []}
        assert api.ask("GET", "/api/schedules?tenant=a", token=token).status_code == 403
        assert api.ask("DELETE", "/api/schedules/it", token=token).status_code in (403, 404)
        assert api.ask("POST", "/api/schedules/it/run", token=token).status_code in (403, 404)
    assert (
        add(api, token=mine, name="program", job={"type": "command", "parameters": {"command": "x"}}).status_code == 403
    )
    assert api.ask("GET", "/api/schedules/it?tenant=a").status_code == 200
    job = api.ask("POST", "/api/schedules/it/run", token=mine).json()["job_id"]
    assert api.ask("GET", f"/api/jobs/{job}").json()["tenant"] == "a"


def test_who_may_run_no_programs_starts_none_by_a_schedule_of_somebody_who_may() -> None:
    def schedule(*, maker_may: bool, job: str = "", workflow: str = "") -> Schedule:
        body = json.dumps({**JOB, "type": job}) if job else ""
        return Schedule(
            schedule_id="a1",
            tenant="default",
            name="it",
            token="t",
            runs_programs=maker_may,
            job=body,
            every=60,
            cron="",
            timezone="UTC",
            overlap=False,
            catch_up="last",
            created=0,
            workflow=workflow,
        )

    some = Principal(tenant="default", token="s", scopes=frozenset({Scope.SUBMIT}))
    for principal in (some, Principal(tenant="default", token="", scopes=frozenset({Scope.SUBMIT, Scope.RUN}))):
        for each in ({"job": "command"}, {"workflow": "name: w"}):
            with pytest.raises(errors.Forbidden, match="scope run"):
                routes.check_may_start(schedule(maker_may=True, **each), principal)
    routes.check_may_start(schedule(maker_may=True, job="collatz"), some)
    routes.check_may_start(schedule(maker_may=False, workflow="name: w"), some)
    routes.check_may_start(
        schedule(maker_may=True, job="command"), Principal(tenant="default", token="r", scopes=frozenset({Scope.RUN}))
    )


def test_a_round_is_repeated_at_once_while_more_may_be_due(monkeypatch: pytest.MonkeyPatch) -> None:
    due = [AT_ONCE, 3]
    monkeypatch.setattr(Runs, "run_due", lambda _self: due.pop(0))
    nothing: Any = None
    runs = Runs(nothing, nothing, nothing, nothing, nothing)
    assert [runs.run_once(), runs.run_once()] == [0.0, None]
