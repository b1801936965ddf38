"""Tests traces: valid traceparent headers, their use, and the spans that an OTLP receiver gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import extras, tracing
from coordinator.telemetry import span_sender
from coordinator.telemetry.otlp import Exporter
from coordinator.telemetry.span_sender import SpanSender
from coordinator.tracing import TraceContext, Tracing
from jobs.settings import Settings
from jobs.store import keys
from tests import fetch
from tests.integration.live import until
from tests.ports import free_port
from tests.unit.collector import Collector, Taken
from tests.unit.workflow_bench import Flows

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"
JOB = {"type": "command", "parameters": {"command": ["true"], "count": 4}}
OFF, ON = Tracing(exports=False), Tracing(exports=True)


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (GIVEN, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"01-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-later-versions-have", True),
    ],
)
def test_a_traceparent_names_a_place(text: str, sampled: bool) -> None:
    place = tracing.parse_traceparent(text)
    assert place == TraceContext(trace_id=TRACE, span_id=SPAN, sampled=sampled)
    assert place.text() == f"00-{TRACE}-{SPAN}-0{int(sampled)}", "it is written as version 00, with the flag known here"
    assert tracing.parse_headers([f" {text}\t"]) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "x",
        GIVEN[:-1],
        GIVEN + "0",
        GIVEN + "-more",
        GIVEN.upper(),
        GIVEN.replace("-", "_"),
        GIVEN + "\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-0٣",
        f"00-{TRACE}-{SPAN}-1",
        "0" * 100_000,
    ],
)
def test_what_is_no_traceparent_is_ignored(text: str) -> None:
    assert tracing.parse_traceparent(text) is None


def test_several_headers_are_as_bad_as_none() -> None:
    assert tracing.parse_headers([]) is None and tracing.parse_headers([GIVEN, GIVEN]) is None


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        (["congo=t61rcWkgMzE"], "congo=t61rcWkgMzE"),
        (["rojo=00f067,\tcongo=a b ", " fw529a3039@dt=x/y"], "rojo=00f067,congo=a b,fw529a3039@dt=x/y"),
        (["a=1,,b=2"], "a=1,b=2"),
        ([",".join(f"k{number}=v" for number in range(32))], ",".join(f"k{number}=v" for number in range(32))),
        ([",".join(f"k{number}=v" for number in range(33))], ""),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a="], ""),
        (["a=1=2"], ""),
        (["a=\u00e9"], ""),
        (["a"], ""),
        (["a=1\nX: y"], ""),
        (["a=" + "x" * 255, "b=" + "x" * 255], ""),
        (["a=" + "x" * 100_000], ""),
        ([], ""),
    ],
)
def test_a_tracestate_is_handed_on_where_it_is_one(headers: list[str], kept: str) -> None:
    place = tracing.parse_headers([GIVEN], headers)
    assert place and place.state == kept and place.text() == GIVEN
    assert tracing.parse_headers(["00-x"], headers) is None


def test_a_request_stands_in_its_callers_span_unless_spans_are_exported() -> None:
    caller = tracing.parse_traceparent(GIVEN)
    assert OFF.create_context(caller) == caller and OFF.create_context(None) is None
    own = ON.create_context(caller)
    assert own and (own.trace_id, own.sampled) == (TRACE, True) and own.span_id != SPAN
    begun = [ON.create_context(None) for _ in range(50)]
    assert len({one.trace_id for one in begun if one and one.sampled}) == 50
    assert tracing.parse_traceparent(begun[0].text() if begun[0] else "") == begun[0]


def test_the_ratio_chooses_traces_that_begin_here_and_no_others() -> None:
    none, half = Tracing(exports=True, ratio=0.0), Tracing(exports=True, ratio=0.5)
    assert [none.create_context(None) for _ in range(20)] == [None] * 20
    kept = sum(half.create_context(None) is not None for _ in range(2000))
    assert 800 < kept < 1200
    unsampled = none.create_context(tracing.parse_traceparent(f"00-{TRACE}-{SPAN}-00"))
    assert unsampled and not unsampled.sampled, "a caller's choice stays"
    assert none.create_context(tracing.parse_traceparent(GIVEN)) is not None


def test_a_jobs_span_is_named_by_its_id() -> None:
    assert tracing.job_span_id("53ebc1f3d5771fb5") == "53ebc1f3d5771fb5"
    names = ["w-53ebc1f3d5771fb5", "0" * 16, "x", "53EBC1F3D5771FB5"]
    made = {tracing.job_span_id(name) for name in names}
    assert len(made) == 4 and all(len(name) == 16 and int(name, 16) for name in made)


# -- a coordinator --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as one:
        yield one


@pytest.fixture
def traced(any_redis_url: str, tmp_path: Path, collector: Collector) -> Iterator[Flows]:
    """Return a coordinator that exports spans to an empty receiver."""
    collector.status = 200
    collector.spans.clear()
    made = Flows(any_redis_url, tmp_path / "store", otel_exporter_otlp_endpoint=collector.url)
    yield made
    made.close()


class Sender(SpanSender):
    """Sender of a leading coordinator without a server; `tell` runs a round for finished jobs."""

    def __init__(self, flow: Flows) -> None:
        super().__init__(flow.store, Exporter(flow.settings), lambda: True)

    def tell(self, *jobs: str) -> None:
        self.note(jobs)
        self.run_once()


def submit(flow: Flows, traceparent: str = "", body: Any = JOB, path: str = "/api/submit") -> tuple[Any, str]:
    """Submit a job. Return the response's body and its traceparent."""
    headers: dict[str, Any] = {"traceparent": traceparent} if traceparent else {}
    answer = flow.ask("POST", path, body, **headers)
    assert answer.is_success, answer.text
    return answer.json(), answer.headers.get("traceparent", "")


def row(flow: Flows, job: str) -> dict[str, Any]:
    row: dict[str, Any] = flow.ask("GET", f"/api/jobs/{job}").json()
    return row


def programs_place(flow: Flows, job: str) -> str:
    """Return the trace position of the job as a runner gets it."""
    [facts] = flow.store.slots.facts([job], "runner")
    assert facts
    return facts.traceparent


def programs_state(flow: Flows, job: str) -> str:
    """Return the vendor entries as a runner gets them."""
    [facts] = flow.store.slots.facts([job], "runner")
    assert facts
    return facts.tracestate


def test_what_vendors_add_goes_to_programs_and_spans(traced: Flows, flow: Flows, collector: Collector) -> None:
    for each in (flow, traced):
        given: dict[str, Any] = {"traceparent": GIVEN, "tracestate": "congo=t61, rojo=1"}
        job = each.ask("POST", "/api/submit", JOB, **given).json()["job_id"]
        assert programs_state(each, job) == "congo=t61,rojo=1"
        bad = each.ask("POST", "/api/submit", JOB, traceparent="00-x", tracestate="congo=t61").json()["job_id"]
        assert programs_state(each, bad) == ""
    workflow = traced.submit("a", traceparent=GIVEN, tracestate="congo=t61")
    traced.look(workflow)
    assert programs_state(traced, traced.job_of(workflow, "a")) == "congo=t61"
    traced.end(job)
    sender = Sender(traced)
    app_spans(traced, sender)
    sender.tell(job)
    told = [one for one in collector.of(TRACE) if one.name in ("POST /api/submit", "job command", "compute")]
    assert len(told) == 3 and {one.state for one in told} == {"congo=t61,rojo=1"}


def test_without_export_a_place_is_handed_on_as_it_came(flow: Flows) -> None:
    answer, back = submit(flow, GIVEN)
    job = answer["job_id"]
    assert back == GIVEN == programs_place(flow, job) and row(flow, job)["trace_id"] == TRACE
    for bad in ("", "00-x", f"ff-{TRACE}-{SPAN}-01"):
        answer, back = submit(flow, bad)
        assert back == "" == programs_place(flow, answer["job_id"])
        assert "trace_id" not in row(flow, answer["job_id"])


def test_with_export_a_job_has_a_span_of_its_own(traced: Flows) -> None:
    answer, back = submit(traced, GIVEN)
    job, own = answer["job_id"], tracing.parse_traceparent(back)
    assert own and own.trace_id == TRACE and own.span_id != SPAN
    assert programs_place(traced, job) == f"00-{TRACE}-{job}-01"
    answer, back = submit(traced, "what is none")
    begun = tracing.parse_traceparent(back)
    assert begun and begun.trace_id != TRACE and row(traced, answer["job_id"])["trace_id"] == begun.trace_id


def test_the_same_key_is_the_same_job_in_the_trace_of_the_first(traced: Flows) -> None:
    first, _ = submit(traced, GIVEN, {**JOB, "idempotency_key": "k"})
    again, _ = submit(traced, GIVEN.replace("4bf9", "5bf9"), {**JOB, "idempotency_key": "k"})
    assert again["job_id"] == first["job_id"] and row(traced, first["job_id"])["trace_id"] == TRACE


def by_name(spans: list[Taken]) -> dict[str, Taken]:
    return {one.name: one for one in spans}


def test_spans_tell_a_job_from_its_submission_to_its_result(traced: Flows, collector: Collector) -> None:
    sender = Sender(traced)
    job = submit(traced, GIVEN)[0]["job_id"]
    traced.end(job)
    app_spans(traced, sender)
    sender.tell(job)
    assert set(collector.calls) == {"/v1/traces"}
    found = by_name(collector.of(TRACE))
    assert found.keys() == {"POST /api/submit", "job command", "queue", "compute", "result"}
    asked, whole, work = found["POST /api/submit"], found["job command"], found["compute"]
    assert (asked.parent, whole.parent, whole.span) == (SPAN, asked.span, job)
    assert {found[name].parent for name in ("queue", "compute", "result")} == {job}
    assert asked.attributes["http.response.status_code"] == 202 and asked.kind == 2
    stored = traced.store.client.hgetall(keys.job(job))
    moments = [int(stored[name]) / 1000 for name in (b"created", b"started", b"ended")]
    assert [whole.start, found["queue"].end, whole.end] == pytest.approx(moments, abs=1e-5, rel=0)
    assert found["queue"].start == whole.start
    assert found["queue"].end <= work.start <= work.end <= found["result"].end == whole.end
    told = {"cluster.worker": "r", "cluster.lane": "r/0", "cluster.leases": 1, "cluster.units": 4}
    assert told.items() <= work.attributes.items() and work.attributes["cluster.busy_seconds"] == 0.01
    assert whole.attributes["cluster.job.state"] == "done" and whole.attributes["cluster.units.done"] == 4
    assert whole.resource["service.name"] == "threads-cluster" and whole.error == ""


def app_spans(flow: Flows, sender: SpanSender) -> None:
    """Move the request spans from the application's own sender to one that the test controls."""
    add: Any = next(layer.kwargs["add"] for layer in flow.app.user_middleware if "add" in layer.kwargs)
    own = add.__self__.spans
    while own.waiting_requests:
        sender.add(own.waiting_requests.popleft())


def test_a_failed_a_cancelled_and_a_waiting_job_are_told_as_they_ended(traced: Flows, collector: Collector) -> None:
    sender = Sender(traced)
    failed, cancelled = (submit(traced, GIVEN)[0]["job_id"] for _ in range(2))
    lease = traced.lease_next(failed)
    assert traced.store.leases.fail_unit(failed, lease.token, "exit code 3", most=0, wait_ms=0, row="{}")
    traced.store.jobs.cancel(failed)
    traced.store.jobs.cancel(cancelled)
    traced.store.client.hset(keys.job(failed), mapping={"state": "failed", "error": "x" * 5000})
    sender.tell(failed, cancelled, "gone")
    jobs = {one.span: one for one in collector.of(TRACE) if one.name == "job command"}
    assert jobs.keys() == {failed, cancelled}
    assert jobs[failed].error == "x" * 500 and jobs[cancelled].error == ""
    waited = next(one for one in collector.of(TRACE) if one.name == "queue" and one.parent == cancelled)
    assert waited.end == jobs[cancelled].end, "it never started"


def test_what_is_not_sampled_or_in_no_trace_is_not_sent(traced: Flows, collector: Collector, flow: Flows) -> None:
    unsampled = submit(traced, f"00-{TRACE}-{SPAN}-00")[0]["job_id"]
    untraced = submit(flow)[0]["job_id"]
    for job in (unsampled, untraced):
        traced.store.jobs.cancel(job)
    sender = Sender(traced)
    app_spans(traced, sender)
    sender.tell(unsampled, untraced)
    assert collector.spans == []
    assert programs_place(traced, unsampled) == f"00-{TRACE}-{unsampled}-00"


def test_what_nobody_writes_stops_no_other_job(traced: Flows, collector: Collector) -> None:
    good, odd, older = (submit(traced, GIVEN)[0]["job_id"] for _ in range(3))
    for job in (good, odd, older):
        traced.store.jobs.cancel(job)
    traced.store.client.hset(keys.job(odd), "ended", "never")
    traced.store.client.hset(keys.job(older), "traceparent", b"\xff\xfe")
    Sender(traced).tell(odd, older, good)
    assert [one.span for one in collector.of(TRACE) if one.name == "job command"] == [good]


def test_jobs_of_a_batch_and_of_a_workflow_are_in_its_trace(traced: Flows, collector: Collector) -> None:
    answer, back = submit(traced, GIVEN, {"jobs": [JOB, {"type": "nothing"}, JOB]}, "/api/submit-batch")
    jobs = [one["job_id"] for one in answer["answers"] if "job_id" in one]
    asked = tracing.parse_traceparent(back)
    assert asked and {row(traced, job)["trace_id"] for job in jobs} == {TRACE} and len(jobs) == 2
    for job in jobs:
        traced.end(job)
    workflow = traced.submit("a", "b, dependencies: [a]", traceparent=GIVEN)
    traced.look(workflow)
    traced.done(workflow, "a")
    jobs += [traced.job_of(workflow, name) for name in ("a", "b")]
    traced.done(workflow, "b")
    sender = Sender(traced)
    app_spans(traced, sender)
    sender.tell(*jobs)
    spans = collector.of(TRACE)
    told = {one.attributes["cluster.job.id"]: one for one in spans if one.name == "job command"}
    assert told.keys() == set(jobs)
    assert {told[job].parent for job in jobs[:2]} == {asked.span_id}
    [posted] = [one for one in spans if one.name == "POST /api/workflows"]
    assert {told[job].parent for job in jobs[2:]} == {posted.span}
    assert {told[job].attributes.get("cluster.workflow.id") for job in jobs[2:]} == {workflow}


def test_a_receiver_that_refuses_or_is_away_costs_spans_and_one_line(
    traced: Flows, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(traced)
    collector.status = 400
    for _ in range(3):
        job = submit(traced, GIVEN)[0]["job_id"]
        traced.store.jobs.cancel(job)
        sender.tell(job)
    assert caplog.text.count("rejected spans") == 1 and collector.spans == []
    collector.status = 200
    sender.tell(job)
    assert [one.name for one in collector.spans] == ["job command", "queue"]


def test_what_waits_is_bounded(traced: Flows) -> None:
    sender = Sender(traced)
    sender.note(str(number) for number in range(span_sender.MAX_WAITING + 5))
    assert len(sender.waiting_jobs) == span_sender.MAX_WAITING and sender.waiting_jobs[0][1] == "5"


def test_who_leads_next_sends_what_ended_before(
    traced: Flows, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads = [False]
    sender = SpanSender(traced.store, Exporter(traced.settings), lambda: leads[0])
    late, old = (submit(traced, GIVEN)[0]["job_id"] for _ in range(2))
    for job in (late, old):
        traced.store.jobs.cancel(job)
    sender.note([old])
    monkeypatch.setattr(span_sender, "LEADERLESS_SECONDS", 0.0)
    sender.run_once()
    monkeypatch.undo()
    sender.note([late])
    sender.run_once()
    assert collector.spans == []
    leads[0] = True
    sender.run_once()
    assert [one.span for one in collector.spans if one.name == "job command"] == [late]


def uninstall(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each == module or each.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


def test_a_coordinator_without_the_packages_of_grpc_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.check(Settings(grpc_port=50051))
    uninstall("grpc", monkeypatch)
    with pytest.raises(extras.MissingPackages, match=r"is not installed: pip install .* requirements/grpc\.txt"):
        extras.check(Settings(grpc_port=50051))
    extras.check(Settings())


def test_a_coordinator_without_the_packages_of_tracing_runs_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator once exited at each start, because of a variable that can be intended for other programs."""
    settings = Settings(otel_exporter_otlp_endpoint="http://127.0.0.1:4318")
    assert extras.drop_unusable(settings) is settings and not caplog.records
    uninstall("opentelemetry.exporter", monkeypatch)
    extras.check(settings)
    usable = extras.drop_unusable(settings)
    assert not usable.otel_exporter_otlp_endpoint and not tracing.Tracing.from_settings(usable).exports
    [line] = caplog.messages
    assert line.startswith("span export is disabled: OTEL_EXPORTER_OTLP_ENDPOINT is set")
    assert "cluster start --tracing; elsewhere, pip install" in line
    assert "--require-hashes -r requirements/tracing.txt" in line and "\n" not in line


def test_a_coordinator_with_packages_of_tracing_that_do_not_fit_together_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Examples are incompatible versions of gRPC and protobuf."""
    (tmp_path / "ill_fitting.py").write_text("raise TypeError('Descriptors cannot be created directly.\\nRegenerate.')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(extras, "TRACING", ("OTEL_EXPORTER_OTLP_ENDPOINT", "tracing", "ill_fitting"))
    usable = extras.drop_unusable(Settings(otel_exporter_otlp_endpoint="http://127.0.0.1:4318"))
    assert not usable.otel_exporter_otlp_endpoint
    [line] = caplog.messages
    assert "(TypeError: Descriptors cannot be created directly.)" in line and "\n" not in line


#: Code that hides OpenTelemetry's exporter packages from an interpreter.
HIDING = "import sys; sys.modules['opentelemetry.exporter'] = None\n"


def test_the_process_of_a_coordinator_without_them_answers(any_redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    port = free_port()
    given = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "REDIS_URL": any_redis_url,
        "COORDINATOR_PORT": str(port),
        "METRICS_PORT": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
    }
    log = tmp_path / "log"
    with log.open("wb") as said:
        process = subprocess.Popen([sys.executable, "-m", "coordinator"], env=given, stdout=said, stderr=said)
    try:
        until(lambda: process.poll() is not None or fetch.get(f"http://127.0.0.1:{port}/ready").status_code == 200)
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(30)
    assert log.read_text().count("requirements/tracing.txt") == 1


def test_a_coordinator_that_exports_nothing_loads_no_exporter() -> None:
    code = (
        "import sys; from coordinator import app; from jobs.settings import Settings; app.create(Settings());"
        "sys.exit(any(name.startswith('opentelemetry.') and 'exporter' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
