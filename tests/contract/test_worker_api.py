"""Tests the worker API: access control, rejections, waiting for work, and the effect of lost responses."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import threading
import time
from typing import Any

import pytest

from coordinator.work import answers as worker_answers
from coordinator.work import polls
from jobs import marks as marks_of
from jobs import queues
from jobs.kinds import registry
from jobs.models import Device
from jobs.partial_reader import GatheredPartials
from jobs.store import Store, fleet, keys
from jobs.store.server.connection import CoordinatorAway, CoordinatorRejects
from jobs.store.work import results
from jobs.store.work.bounds import encode_base64
from jobs.store.work.lease_store import Claimed, Pulse
from jobs.store.work.leases import Finished, Grant
from jobs.store.work.slots import Held, Taken
from jobs.worker.api.api_calls import AccessDenied, Api, Place
from jobs.worker.api.api_store import ApiStore
from jobs.worker.telemetry.host import Host
from tests import fetch
from tests.contract.api_transport import Served, serve
from tests.contract.lease_model import encode, new_job, total_of
from tests.ports import free_port

JOB = 10**9
ROW: dict[str, Any] = {
    "device": "cpu",
    "state": "busy",
    "lanes": 2,
    "busy_lanes": 1,
    "job": "",
    "kinds": '{"sum": 1}',
    "pid": 7,
    "rates": '{"sum": 0.5}',
    **Host("here").figures(),
    "cpu_level": "avx2",
    "refused": "sum: wrong",
}


def submit(store: Store, job: str = "j", total: int = 10, **more: Any) -> str:
    store.jobs.submit([new_job(job, total, "any.normal", **more)])
    return job


def hold(worker: ApiStore) -> str:
    found = worker.slots.next("", queues.ALL)
    assert isinstance(found, Held)
    return found.job_id


def grant(worker: ApiStore, token: str = "t", want: int = 10) -> Grant:
    found = worker.leases.lease("j", token, want=want, worker="")
    assert isinstance(found, Grant)
    return found


def commit(worker: ApiStore, upto: int = 10, token: str = "t") -> Any:
    lo = 0
    return worker.leases.commit("j", token, upto, encode(total_of(lo, upto)), ms=1, worker="", device="cpu")


# -- who ------------------------------------------------------------------------------------------------------------


def test_a_worker_is_who_its_token_is_named_after(served: Served) -> None:
    assert served.worker("far-1").register().worker == "far-1"
    for token in ("none", "tc_aaaaaaaaaa_" + "x" * 43):
        with pytest.raises(AccessDenied, match="unknown") as refused:
            ApiStore(served.api(token), Device.CPU).register()
        assert "cluster token create NAME --scopes worker" in str(refused.value)


@pytest.mark.parametrize("scopes", [("read", "submit", "run", "infer", "operate")])
def test_no_other_scope_takes_work_and_this_one_opens_nothing_else(served: Served, scopes: tuple[str, ...]) -> None:
    with pytest.raises(AccessDenied, match="needs the scope worker"):
        ApiStore(served.api(served.token("p", *scopes)), Device.CPU).register()
    headers = {"Authorization": f"Bearer {served.token('far')}"}
    for path in ("status", "jobs", "workers", "tokens", "audit"):
        answer = fetch.get(f"{served.place}/api/{path}", headers=headers)
        assert answer.status_code == 403, path


def test_a_token_whose_name_no_worker_can_have_is_refused(served: Served) -> None:
    with pytest.raises(AccessDenied, match="not a valid worker name"):
        ApiStore(served.api(served.token("me@home")), Device.CPU).register()


def test_a_token_that_is_revoked_ends_its_worker(served: Served, store: Store) -> None:
    worker, told = served.worker("far"), list[str]()
    worker.api.refused = told.append
    worker.register()
    store.tokens.revoke(store.tokens.all()[0].id)
    served.app.state.coordinator.cluster.credentials.invalidate()
    with pytest.raises(AccessDenied, match="revoked"):
        worker.register()
    assert len(told) == 1 and "restart the worker" in told[0]


# -- what is whose --------------------------------------------------------------------------------------------------


def test_nobody_ends_or_extends_the_lease_of_another_worker(served: Served, store: Store) -> None:
    submit(store)
    mine, other = served.worker("mine"), served.worker("other")
    assert hold(mine) == "j"
    grant(mine)
    token = next(iter(store.client.hkeys(keys.job_lease("j")))).decode()
    assert token == "mine/t"
    assert not commit(other).merged
    assert not any((other.leases.release("j", "t"), other.leases.crash("j", "t"), other.leases.fail("j", "t", "no")))
    born = other.fleet.birth()
    pulse = Pulse(worker="", born=born, row=lambda: ROW, leases=(("j", "t", 5),))
    assert other.pulse(pulse).leases == (0,)
    assert commit(mine).finishing


def test_a_worker_leases_and_reads_the_job_that_it_holds_and_no_other(served: Served, store: Store) -> None:
    submit(store, tenant="default")
    stranger = served.worker("stranger")
    assert stranger.leases.lease("j", "t", want=1, worker="") == "gone"
    nothing = stranger.results.gather("j")
    assert (nothing.spec, nothing.parts, nothing.done) == (None, (), 0)
    mine = served.worker("mine")
    hold(mine)
    grant(mine)
    commit(mine)
    gathered = mine.results.gather("j")
    assert gathered.parts == (encode(total_of(0, 10)),) and gathered.spec == b"{}"
    assert not stranger.results.abort("j", "because") and not stranger.results.count_derive_crash("j", "s", "because")
    assert not stranger.results.finish("j", nothing, b"{}")
    assert store.client.hget(keys.job("j"), "state") == b"finishing"
    assert mine.results.fold("j", gathered, encode(total_of(0, 10)))
    assert mine.results.finish("j", mine.results.gather("j"), encode(total_of(0, 10)))


def test_who_commits_the_last_unit_derives_the_result_although_it_holds_another_job(
    served: Served, store: Store
) -> None:
    """Its lanes finish their leases after its slot has gone to others, or ended; nobody else would for a second."""
    submit(store)
    mine, stranger = served.worker("w"), served.worker("v")
    hold(mine)
    grant(mine)
    assert stranger.results.gather("j").spec is None
    mine.slots.leave("w")
    assert mine.results.gather("j").spec is None, "it has not computed any of it yet"
    assert commit(mine).finishing
    assert stranger.results.gather("j").spec is None
    assert mine.results.fold("j", mine.results.gather("j"), encode(total_of(0, 10)))
    assert mine.results.finish("j", mine.results.gather("j"), encode(total_of(0, 10)))
    assert store.client.hget(keys.job("j"), "state") == b"done"


def test_a_result_that_cannot_be_derived_fails_its_job(served: Served, store: Store) -> None:
    submit(store)
    mine = served.worker("mine")
    hold(mine)
    grant(mine)
    commit(mine)
    mine.results.gather("j")
    assert mine.results.abort("j", "no such thing")
    assert store.client.hmget(keys.job("j"), "state", "error") == [b"failed", b"no such thing"]


# -- bounds ---------------------------------------------------------------------------------------------------------

LEASE = {"job": "j", "token": "t", "want": 1}
COMMIT = {"job": "j", "token": "t", "upto": 1, "partial": encode_base64(b"{}"), "device": "cpu", "ms": 1}
FAILED = {"job": "j", "token": "t", "error": "", "most": 0, "wait_ms": 0}
NEXT = {"device": "cpu", "lanes": 1}
HEARTBEAT = {"born": "0000000000000-00000000", "row": ROW}
DONE = {"job_id": "j", "token": "t", "result": encode_base64(b"{}"), "ms": 1}


#: Calls, and the field that is rejected in each.
OUT_OF_BOUNDS: list[tuple[str, dict[str, Any], str]] = [
    ("next", {**NEXT, "device": "tpu"}, "device"),
    ("next", {**NEXT, "lanes": 0}, "lanes"),
    ("next", {**NEXT, "lanes": 10**9}, "lanes"),
    ("next", {**NEXT, "wait_seconds": 20.1}, "wait_seconds"),
    ("next", {**NEXT, "take": -1}, "take"),
    ("next", {**NEXT, "worker": "other"}, "worker"),
    ("lease", {**LEASE, "want": 2**53 + 1}, "want"),
    ("lease", {**LEASE, "token": "other/t"}, "token"),
    ("lease", {**LEASE, "lane": "other/0"}, "lane"),
    ("lease", {**LEASE, "rate": -1.0}, "rate"),
    ("commit", {**COMMIT, "partial": "no base64"}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b"[1]")}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b"{")}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b'{"a": NaN}')}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b'{"a": "\\ud800"}')}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64('{"a": 1}'.encode("utf-16"))}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b"\xef\xbb\xbf{}")}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b"[" * 500 + b"]" * 500)}, "partial"),
    ("commit", {**COMMIT, "partial": encode_base64(b'{"a": "' + b"\xff" * (1 << 20) + b'"}')}, "partial"),
    ("commit", {**COMMIT, "upto": 0}, "upto"),
    ("commit", {**COMMIT, "ms": -1}, "ms"),
    ("commit", {**COMMIT, "joules": 1e13}, "joules"),
    ("commit", {**COMMIT, "device": "any"}, "device"),
    ("done1-all", {"finished": [], "device": "cpu"}, "finished"),
    (
        "done1-all",
        {"finished": [{**DONE, "marks": '[["collatz:verified", "x", "1"]]'}], "device": "cpu"},
        "finished.0.marks",
    ),
    (
        "done1-all",
        {"finished": [{**DONE, "marks": '[["collatz:verified", "\u0661-\u0662", "1"]]'}], "device": "cpu"},
        "finished.0.marks",
    ),
    (
        "done1-all",
        {"finished": [{**DONE, "marks": '[["collatz:verified", "1-2", "\\ud800"]]'}], "device": "cpu"},
        "finished.0.marks",
    ),
    ("fail", {"job": "j", "token": "t", "error": "x" * 2001}, "error"),
    ("heartbeat", {**HEARTBEAT, "born": "later"}, "born"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "state": "lost"}}, "row.state"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "gpus": '[{"uuid": 1}]'}}, "row.gpus"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "rates": '{"sum": "fast"}'}}, "row.rates"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "gpus": '[{"uuid": "\\ud800"}]'}}, "row.gpus"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "gpus": '[{"uuid": "a", "power_watts": NaN}]'}}, "row.gpus"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "gpus": '[{"uuid": "a", "power_watts": "much"}]'}}, "row.gpus"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "gpus": '[{"uuid": "a", "more": {"a": 1}}]'}}, "row.gpus"),
    *(
        ("heartbeat", {**HEARTBEAT, "row": {**ROW, "gpus": json.dumps([{"uuid": "a", **wrong}])}}, "row.gpus")
        for wrong in (
            {"name": 5},
            {"name": ["a"]},
            {"name": "a\n"},
            {"name": "\x1b[31m"},
            {"name": "a" * 97},
            {"throttle_reasons": 5},
            {"throttle_reasons": "abc"},
            {"job": 5},
            {"uuid": "a\n"},
            {"uuid": ""},
        )
    ),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "kinds": f'{{"sum": 1{"0" * 400}}}'}}, "row.kinds"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "rates": f'{{"sum": -1{"0" * 400}}}'}}, "row.rates"),
    ("heartbeat", {**HEARTBEAT, "row": {**ROW, "rates": '{"\\ud800": 1}'}}, "row.rates"),
    ("fail-unit", {**FAILED, "row": "[1]"}, "row"),
    ("fail-unit", {**FAILED, "row": '{"attempt": "second"}'}, "row"),
    ("fail-unit", {**FAILED, "row": '{"exit": 1.5}'}, "row"),
    ("fail-unit", {**FAILED, "row": '{"seconds": -1}'}, "row"),
    ("fail-unit", {**FAILED, "row": '{"error": {"a": 1}}'}, "row"),
    ("fail-unit", {**FAILED, "row": '{"more": []}'}, "row"),
    ("fail-unit", {**FAILED, "row": '{"tail": "' + "x" * 4096 + '"}'}, "row"),
    ("gather", {"job": "j", "limit": 257}, "limit"),
    ("gather", {"job": "j", "start": 256}, "start"),
    ("fold", {"job": "j", "digest": "0" * 39, "parts": 1, "accumulator": encode_base64(b"{}")}, "digest"),
    ("claim", {}, "gpus"),
    ("claim", {"gpus": []}, "gpus"),
    ("claim", {"gpu": "GPU-1"}, "gpu"),
    ("claim", {"gpus": ["GPU-1"] * 65}, "gpus"),
    ("claim", {"gpus": ["GPU:1"]}, "gpus"),
    ("claim", {"gpus": ["GPU-1"], "priority": "urgent"}, "priority"),
]


def test_what_is_out_of_bounds_is_refused_by_field(served: Served) -> None:
    worker = served.worker("w")
    for name, body, field in OUT_OF_BOUNDS:
        with pytest.raises(CoordinatorRejects, match=rf"\(422\): {re.escape(field)}[:. ]"):
            worker.api.call(name, body)


def test_a_commit_beyond_its_lease_is_refused_and_changes_nothing(served: Served, store: Store) -> None:
    submit(store)
    worker = served.worker("w")
    hold(worker)
    grant(worker, want=5)
    with pytest.raises(CoordinatorRejects, match="upto: COMMIT of 11 outside"):
        worker.api.call("commit", {**COMMIT, "upto": 11})
    assert store.client.llen(keys.job_parts("j")) == 0


def test_marks_are_of_the_jobs_kind(served: Served, store: Store) -> None:
    submit(store, small=True, estimate_ms=10)
    worker = served.worker("w")
    found = worker.slots.next("", queues.ALL)
    assert isinstance(found, Taken)
    [(job, token)] = found.jobs
    lie = json.dumps([["collatz:verified", "1-9", "null"]])
    finished = Finished(job_id=job, token=token, result=encode(total_of(0, 10)), ms=1, marks=lie)
    assert worker.leases.done1_all([finished], worker="", device="cpu") == [False]
    assert not store.marks.read("collatz", "verified")
    assert b"is not a mark of job j" in (store.client.hget(keys.job("j"), "error") or b"")


def test_marks_are_those_of_the_jobs_own_range_and_result(served: Served, store: Store) -> None:
    """A worker that computed seven numbers proves nothing of others."""
    kind = registry.definition("collatz")
    parameters = kind.parameters(start_number=5, number_count=7)
    spec = kind.plan(parameters).spec
    version = int(kind.model_version)
    submit(store, total=7, small=True, estimate_ms=10, kind="collatz", version=version, spec=dict(spec))
    worker = served.worker("w")
    found = worker.slots.next("", queues.ALL)
    assert isinstance(found, Taken)
    body = {"job_id": "j", "token": found.jobs[0][1], "result": encode_base64(b"{}"), "ms": 1}
    for lie in ("5-13", "1-99999999999999999999", "5-12\t"):
        marks = json.dumps([["collatz:verified", lie, "null"]])
        with pytest.raises(CoordinatorRejects, match=r"\(422\): .*marks"):
            worker.api.call("done1-all", {"finished": [{**body, "marks": marks}], "device": "cpu"})
    true = marks_of.serialize_marks("collatz", spec, {})
    lost = {**body, "result": encode_base64(b'{"verified": false}'), "marks": true}
    with pytest.raises(CoordinatorRejects, match=r"collatz:verified 5-12 .*is not a mark of job"):
        worker.api.call("done1-all", {"finished": [lost], "device": "cpu"})
    assert worker.api.call("done1-all", {"finished": [{**body, "marks": true}], "device": "cpu"}) == {"answer": [True]}
    assert [(mark.lo, mark.hi) for mark in store.marks.read("collatz", "verified")] == [(5, 12)]


def test_nobody_plants_an_accumulator_in_a_job_without_parts(served: Served, store: Store) -> None:
    """Everybody knows the digest of nothing."""
    submit(store)
    stranger = served.worker("stranger")
    nothing = GatheredPartials(accumulator=None, parts=(), done=0, spec=None).digest
    for job in ("j", "none"):
        for parts in (1, 256):
            body = {"job": job, "digest": nothing, "parts": parts, "accumulator": encode_base64(b'{"sum": 7}')}
            assert stranger.api.call("fold", body) == {"answer": False}
    assert not store.client.exists(keys.job_accumulator("j"), keys.job_accumulator("none"), keys.job("none"))


def test_large_parts_come_in_several_answers(served: Served, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(store, total=6)
    mine = served.worker("mine")
    hold(mine)
    monkeypatch.setattr(worker_answers, "SOME_BYTES", 3000)
    monkeypatch.setattr(results, "SOME_BYTES", 3000)
    texts = [b'{"a":"' + b"x" * size + b'"}' for size in (10, 2000, 900, 5000, 1, 1)]
    for unit, text in enumerate(texts):
        grant(mine, f"t{unit}", want=1)
        mine.leases.commit("j", f"t{unit}", unit + 1, text, ms=1, worker="", device="cpu")
    gathered = mine.results.gather("j")
    assert gathered.parts == tuple(texts) and gathered.digest == store.results.gather("j").digest
    some = mine.api.call("gather", {"job": "j"})["answer"]
    assert (len(some["parts"]), some["more"]) == (3, True)
    assert mine.results.gather("j", 4).parts == tuple(texts[:4])
    assert not mine.results.abort("j", "of four alone")
    mine.results.gather("j")
    assert mine.results.abort("j", "no sum")
    assert store.client.hget(keys.job("j"), "error") == b"no sum"


RUN = {"lo": 2, "worker": "w", "ms": [5, 6], "attempts": [1, 2], "values": [None, {"a": 1}]}


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([{**RUN, "lo": -(10**12)}], "the next run must start at unit 2"),
        ([{**RUN, "lo": 1}], "the next run must start at unit 2"),
        ([{**RUN, "ms": [5], "attempts": [1], "values": None}], "must end before unit 4"),
        ([RUN, {**RUN, "lo": 4}], "must end before unit 4"),
        ([{**RUN, "worker": "other"}], "worker (w)"),
        ([{**RUN, "ms": [5, -1]}], "an entry per unit"),
        ([{**RUN, "ms": [5, True]}], "an entry per unit"),
        ([{**RUN, "attempts": [0, 1]}], "an entry per unit"),
        ([{**RUN, "attempts": [1]}], "an entry per unit"),
        ([{**RUN, "values": [None, "x" * 8200]}], "an entry per unit"),
        ([{**RUN, "values": {}}], "an entry per unit"),
        ([{**RUN, "more": 1}], "an entry per unit"),
        ([7], "an entry per unit"),
        ({"lo": 2}, "with the fields runs"),
    ],
)
def test_a_partial_of_programs_is_of_the_units_of_its_lease(
    served: Served, store: Store, runs: Any, words: str
) -> None:
    submit(store, kind="command", total=6)
    worker = served.worker("w")
    hold(worker)
    grant(worker, "first", want=2)
    grant(worker, want=3)
    body = {"job": "j", "token": "t", "upto": 4, "device": "cpu", "ms": 1, "keep": True, "lo": 2}
    for text in (json.dumps({"runs": runs}), json.dumps({"runs": runs}).replace('"runs"', '"\\u0072uns"')):
        with pytest.raises(CoordinatorRejects, match=rf"partial: .*{re.escape(words)}"):
            worker.api.call("commit", {**body, "partial": encode_base64(text.encode())})
    for files in (7, {"count": 0, "names": []}, {"count": 9, "names": ["a"] * 4}, {"count": 1, "names": ["a" * 201]}):
        text = json.dumps({"runs": [RUN], "new_files": files})
        with pytest.raises(CoordinatorRejects, match="partial: new_files must have a count"):
            worker.api.call("commit", {**body, "partial": encode_base64(text.encode())})
    files = {"count": 9, "names": ["a", "b"]}
    honest = encode_base64(json.dumps({"runs": [RUN], "new_files": files}).encode())
    assert worker.api.call("commit", {**body, "partial": honest})["answer"]["merged"]
    assert worker.api.call("commit", {**body, "partial": honest})["answer"]["merged"], "its answer was lost"


def test_a_partial_that_is_rejected_fails_its_range_with_the_reason(served: Served, store: Store) -> None:
    submit(store)
    worker = served.worker("w")
    hold(worker)
    grant(worker)
    assert not worker.leases.commit("j", "t", 10, b"[]", ms=1, worker="", device="cpu").merged
    assert b"partial: must be the base64 of a JSON object" in (store.client.hget(keys.job("j"), "error") or b"")


# -- waiting for work -----------------------------------------------------------------------------------------------


def answers(worker: ApiStore, **more: Any) -> tuple[threading.Thread, list[Any]]:
    """Send a waiting request on a separate thread, and return the thread and the place of its response."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(worker.slots.next("", queues.ALL, **more))
        except CoordinatorAway as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, found


def waiting(served: Served, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(served.app.state.coordinator.polls) != count:
        assert time.monotonic() < deadline, f"{len(served.app.state.coordinator.polls)} wait"
        time.sleep(0.005)


def test_a_question_that_waits_hears_of_a_job_and_holds_no_thread(
    served: Served, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a bell: nobody looks without one here."""
    monkeypatch.setattr(polls, "POLL_SECONDS", 60.0)
    many = [served.worker(f"w{number}", poll_seconds=20.0) for number in range(60)]
    asked = [answers(worker) for worker in many]
    waiting(served, 60)
    assert served.worker("other").register().worker == "other", "all 40 threads wait"
    began = time.monotonic()
    submit(store)
    while not any(found for _, found in asked):
        assert time.monotonic() - began < 60, "nobody heard the bell"
        time.sleep(0.005)
    assert sum(len(found) for _, found in asked) == 1
    assert next(found[0] for _, found in asked if found) == Held(job_id="j")
    for worker in many:
        worker.api.interrupt()
    for thread, _ in asked:
        thread.join(30)
        assert not thread.is_alive()


def test_the_bell_of_a_worker_that_has_gone_is_heard_by_another(served: Served, store: Store) -> None:
    gone = http.client.HTTPConnection(served.place.host, served.place.port)
    headers = {"Authorization": f"Bearer {served.token('gone')}", "Content-Type": "application/json"}
    gone.request("POST", "/api/worker/next", json.dumps({**NEXT, "wait_seconds": 20.0}), headers)
    waiting(served, 1)
    gone.close()
    thread, found = answers(served.worker("alive", poll_seconds=20.0))
    waiting(served, 2)
    submit(store)
    thread.join(30)
    assert found == [Held(job_id="j")]
    assert store.slots.held("gone") == "" and store.slots.held("alive") == "j"


def test_the_bell_of_a_device_is_heard_by_its_workers(served: Served, store: Store) -> None:
    cpu, gpu = served.worker("c", poll_seconds=20.0), served.worker("g", Device.GPU, poll_seconds=20.0)
    on_cpu, on_gpu = answers(cpu), answers(gpu)
    waiting(served, 2)
    store.jobs.submit([new_job("j", 10, "gpu.normal")])
    on_gpu[0].join(30)
    assert on_gpu[1] == [Held(job_id="j")] and not on_cpu[1]
    cpu.api.interrupt()
    on_cpu[0].join(30)
    assert isinstance(on_cpu[1][0], CoordinatorAway)


def test_a_token_that_is_revoked_while_it_waits_gets_no_work(served: Served, store: Store) -> None:
    gone = served.worker("gone", poll_seconds=20.0)
    thread, found = answers(gone)
    waiting(served, 1)
    [token] = [each.id for each in store.tokens.all() if each.name == "gone"]
    store.tokens.revoke(token)
    served.app.state.coordinator.cluster.credentials.invalidate()
    submit(store)
    thread.join(30)
    assert isinstance(found[0], AccessDenied)
    assert served.worker("other", poll_seconds=20.0).slots.next("", queues.ALL) == Held(job_id="j")


def test_without_work_the_answer_is_none_after_the_time_that_was_asked_for(served: Served) -> None:
    worker = served.worker("w", poll_seconds=0.3)
    began = time.monotonic()
    assert worker.slots.next("", queues.ALL) == "none"
    assert time.monotonic() - began >= 0.3


# -- what is lost ---------------------------------------------------------------------------------------------------


def test_every_call_is_answered_alike_when_it_comes_again(served: Served, store: Store) -> None:
    submit(store)
    worker = served.worker("w")
    hold(worker)
    assert grant(worker, want=4) == grant(worker, want=9) == Grant(token="t", lo=0, hi=4)
    assert commit(worker, 4).merged
    again = commit(worker, 4)
    assert not again.merged and store.client.hget(keys.job("j"), "done") == b"4"
    grant(worker, "u")
    assert worker.leases.release("j", "u") and not worker.leases.release("j", "u")


def test_a_coordinator_that_goes_and_comes_costs_a_pause(any_redis_url: str, store: Store) -> None:
    with serve(any_redis_url, store) as first:
        worker = first.worker("w")
        worker.register()
    with pytest.raises(CoordinatorAway) as away:
        worker.register()
    assert 0.1 <= away.value.pause_seconds <= 0.2
    pauses = []
    for _ in range(6):
        with pytest.raises(CoordinatorAway) as away:
            worker.register()
        pauses.append(away.value.pause_seconds)
    assert 1.0 <= pauses[-1] <= 2.0
    with serve(any_redis_url, store) as second:
        worker.api.place = second.place
        assert worker.register().worker == "w"
        worker.api.disconnect()


def test_nobody_at_the_address_and_other_servers_are_named() -> None:
    api = Api(Place(False, "127.0.0.1", free_port(), ""), "t")
    with pytest.raises(CoordinatorAway, match="connection refused"):
        api.call("register", {})


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (
            200,
            {},
            b'{"ok": true}',
            "its response to register has no valid field answer: .*check that this is the address",
        ),
        (200, {}, b'{"answer": {"worker": ["w"], "born": 1}}', "has no valid field answer.worker"),
        (200, {}, b"<html>", "it returned HTTP 200 '<html>'"),
        (
            301,
            {"Location": "https://other/"},
            b"",
            r"it returned a redirect \(301\) to 'https://other/'; set WORKER_API to the cluster's own address",
        ),
    ],
)
def test_another_server_is_named_and_waited_for(status: int, headers: dict[str, str], body: bytes, words: str) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Disable the request log."""

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        api = Api(Place(False, "127.0.0.1", other.server_port, ""), "t")
        with pytest.raises(CoordinatorAway, match=words):
            ApiStore(api, Device.CPU).register()
        api.disconnect()
        other.shutdown()


def test_a_beat_keeps_leases_and_says_what_to_do(served: Served, store: Store) -> None:
    submit(store)
    worker = served.worker("w")
    hold(worker)
    grant(worker)
    born = worker.fleet.birth()
    pulse = Pulse(worker="", born=born, row=lambda: ROW, leases=(("j", "t", 3), ("j", "other", 0)), slot=True)
    heard = worker.pulse(pulse)
    assert (heard.word, heard.leases) == ("ok", (1, 0))
    worker.api.call("heartbeat", {"born": born, "row": {**ROW, "drain": "1", "born": "9", "retired": "x"}})
    assert store.client.hmget(keys.worker("w"), "drain", "born", "retired") == [None, born.encode(), b"x"]
    store.jobs.pause("j")
    assert worker.pulse(pulse).leases[0] == 2
    store.fleet.drain("w")
    assert worker.pulse(pulse).word == "drain"
    assert worker.fleet.heartbeat("", born, {**ROW, "state": "stopped"}, leaving=True) == "ok"
    assert store.client.hget(keys.worker("w"), "state") == b"stopped"


def test_a_gpu_is_claimed_by_one_worker(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "GPU_TTL_MS", 600_000)
    first, second = served.worker("a"), served.worker("b")
    assert first.fleet.claim(["GPU-1"], "").held and first.fleet.claim(["GPU-1"], "").held
    assert second.fleet.claim(["GPU-2", "GPU-1"], "") == Claimed(held=False, by="worker")
    first.fleet.give_up(["GPU-1"], "")
    assert second.fleet.claim(["GPU-2", "GPU-1"], "", "high").held
    assert not first.fleet.claim(["GPU-2"], "").held


# -- programs ---------------------------------------------------------------------------------------------------------

OFFER = {"cpus": 2, "memory_mib": 1000, "gpus": [], "host": "here", "labels": [], "tenant": ""}


def _program(served: Served, store: Store, **more: Any) -> tuple[ApiStore, Grant]:
    """Return a runner with a lease of a program with ten units."""
    store.jobs.submit([new_job("j", 10, "runner.normal", **more)])
    runner = served.worker("runner-1", Device.RUNNER)
    assert runner.slots.next("", (), offer=OFFER) == Held(job_id="j")
    return runner, grant(runner)


def test_a_runner_keeps_fails_and_splits_its_lease(served: Served, store: Store) -> None:
    runner, lease = _program(served, store, tenant="default")
    facts = runner.slots.facts(["j"], "runner")[0]
    assert facts and (facts.tenant, facts.priority, lease.errors) == ("default", "normal", 0)
    kept: dict[str, Any] = {"ms": 1, "worker": "", "device": "runner", "keep": True}
    for _ in range(2):
        assert runner.leases.commit("j", "t", 4, encode(total_of(0, 4)), lo=0, **kept).merged
    assert not runner.leases.commit("j", "t", 6, encode(total_of(0, 6)), lo=0, **kept).merged
    with pytest.raises(CoordinatorRejects, match="lo: "):
        runner.api.call("commit", _commit_body(4) | {"keep": True})
    assert runner.leases.split("j", "t", 6)
    row = json.dumps({"unit": 4, "exit": 1, "value": ["why", {}]})
    assert not runner.leases.fail_unit("j", "t", "exit 1", most=3, wait_ms=0, row=row, unit=5)
    assert runner.leases.fail_unit("j", "t", "x" * 1000, most=3, wait_ms=0, row=row, unit=4)
    assert store.client.hgetall(keys.job_failures("j")) == {b"4": row.encode()}
    again = grant(runner, "u")
    assert (again.lo, again.hi, again.errors) == (4, 5, 1)


def test_a_runner_without_a_free_slot_pops_no_bells_and_starts_replicas(served: Served, store: Store) -> None:
    """Programs stay queued, with their wake-ups, until a slot is free."""
    full = served.worker("full", Device.RUNNER, poll_seconds=20.0)
    version = registry.versions()["service"]
    thread, found = answers(full, offer=OFFER, kinds={"service": version})
    waiting(served, 1)
    store.jobs.submit([new_job("j", 10, "runner.normal")])
    time.sleep(1.5 * polls.POLL_SECONDS)
    assert not found and store.client.zscore(keys.pending("runner.normal"), "j") is not None
    assert store.client.llen(keys.rq_queue("runner.normal")) == 1
    free = served.worker("free", Device.RUNNER, poll_seconds=20.0)
    assert free.slots.next("", (), offer=OFFER) == Held(job_id="j")
    store.jobs.submit([new_job("v-aaa-1", 1, "runner.normal", kind="service", version=version)])
    thread.join(30)
    assert found == [Held(job_id="v-aaa-1")]


def _commit_body(upto: int) -> dict[str, Any]:
    return {"job": "j", "token": "t", "upto": upto, "partial": encode_base64(b"{}"), "device": "runner", "ms": 1}


@pytest.mark.parametrize(
    ("call", "change", "field"),
    [
        ("next", {"offer": None}, "offer"),
        ("next", {"offer": OFFER | {"cpus": -1}}, "offer.cpus"),
        ("next", {"offer": OFFER | {"gpus": [{"memory_mib": 1, "compute_capability": "x"}]}}, "compute_capability"),
        ("next", {"offer": OFFER | {"labels": ["a"] * 65}}, "offer.labels"),
        ("next", {"offer": OFFER | {"more": 1}}, "offer.more"),
        ("next", {"device": "cpu"}, "offer"),
        ("fail-unit", {"row": "[]"}, "row"),
        ("fail-unit", {"row": json.dumps({"tail": "x" * 5000})}, "row"),
        ("fail-unit", {"wait_ms": 3_600_001}, "wait_ms"),
        ("fail-unit", {"most": -1}, "most"),
        ("split", {"at": -1}, "at"),
    ],
)
def test_calls_of_runners_are_within_bounds(
    served: Served, store: Store, call: str, change: dict[str, Any], field: str
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "next": {"device": "runner", "lanes": 1, "offer": OFFER},
        "fail-unit": {"job": "j", "token": "t", "error": "", "most": 3, "wait_ms": 0, "row": "{}", "unit": 0},
        "split": {"job": "j", "token": "t", "at": 5},
    }
    runner, _ = _program(served, store)
    with pytest.raises(CoordinatorRejects, match=re.escape(field)):
        runner.api.call(call, bodies[call] | change)


@pytest.mark.parametrize(
    "wrong",
    [
        {"disks": '[{"disk": "8:1"}]'},
        {"disks": "[1]"},
        {"disks": '[{"disk": "x", "places": [], "free_bytes": 1, "total_bytes": 1}]'},
        {"versions": '{"python": 3}'},
        {"versions": '{"a b": "1"}'},
        {"load1": -1.0},
        {"clock": -1.0},
        {"round_trip_seconds": -0.1},
        {"network_receive_bytes_per_second": -1.0},
    ],
)
def test_what_a_worker_says_of_its_host_is_within_bounds(served: Served, store: Store, wrong: dict[str, Any]) -> None:
    worker = served.worker("worker-1", Device.CPU)
    disk = {"disk": "8:1", "places": ["data"], "free_bytes": 1, "total_bytes": 2}
    told = ROW | {
        "load1": 1.5,
        "disks": json.dumps([disk]),
        "versions": '{"python": "3.11.2"}',
        "clock": 1e9,
        "round_trip_seconds": 0.1,
    }
    assert worker.fleet.heartbeat("", "0000000000001-00000000", told) == "ok"
    [shown] = served.app.state.coordinator.cluster.queries.fleet.workers()
    assert (shown["load1"], shown["disks"], shown["versions"]) == (1.5, [disk], {"python": "3.11.2"})
    assert shown["clock_offset_seconds"] < -1e6
    with pytest.raises(CoordinatorRejects, match=next(iter(wrong))):
        worker.fleet.heartbeat("", "0000000000001-00000000", told | wrong)


def test_a_runner_says_what_it_offers(served: Served, store: Store) -> None:
    runner = served.worker("runner-1", Device.RUNNER)
    gpu = {"memory_mib": 1000, "compute_capability": "8.0", "name": "one"}
    row = ROW | {
        "device": "runner",
        "offer": json.dumps(OFFER | {"gpus": [gpu]}),
        "isolation": "uid",
        "cordoned": "no disk",
        "running": '[["j", 3]]',
        "beside_replicas": json.dumps(OFFER | {"replicas": 3, "works_for": "a", "later": True}),
    }
    assert runner.fleet.heartbeat("", "0000000000001-00000000", row) == "ok"
    [shown] = served.app.state.coordinator.cluster.queries.fleet.workers()
    assert shown["offer"]["gpus"] == [gpu] and shown["running"] == [["j", 3]]
    assert (shown["isolation"], shown["cordoned"]) == ("uid", "no disk")
    fleet = served.app.state.coordinator.cluster.queries.fleet_cache.get()
    assert not fleet.runners and fleet.resting["runner-1"][1] == "no disk"
    for wrong in (
        {"offer": "{}"},
        {"beside_replicas": json.dumps(OFFER)},
        {"running": "[[1, 2]]"},
        {"running": '[["j"]]'},
        {"isolation": "none"},
    ):
        with pytest.raises(CoordinatorRejects, match=next(iter(wrong))):
            runner.fleet.heartbeat("", "0000000000001-00000000", row | wrong)
