"""The invariants of docs/lease-protocol.md, by number, each a check of one snapshot against what the tests know.

12 (repeated calls) is checked where calls are made; 13 and 14 (liveness, rest) at the end of a run.
"""

from __future__ import annotations

from collections import Counter

from jobs import queues
from jobs.store import keys
from jobs.store.work import wakeups
from jobs.store.work.leases import Grant
from tests.contract.lease_model import Bench, JobView, Snapshot, merge, total_of

PENDABLE = {"queued", "running", "finishing"}
ACTIVE = {"running", "finishing", "cancelling"}
TERMINAL = {"done", "failed", "cancelled", "skipped"}
#: Events that can follow an event; a small job changes from running to done.
FOLLOWS = {
    "": {"queued", "blocked"},
    "blocked": {"queued", "skipped", "cancelled"},
    "skipped": {"queued", "blocked", "deleted"},
    "queued": {"running", "paused", "cancelling", "cancelled", "finishing"},
    "running": {"finishing", "paused", "cancelling", "cancelled", "failed", "done"},
    "paused": {"queued", "running", "finishing", "cancelling", "cancelled"},
    "finishing": {"done", "failed"},
    "cancelling": {"cancelled"},
    "cancelled": {"queued", "blocked", "deleted"},
    "failed": {"queued", "finishing", "deleted"},
    "done": {"deleted"},
    "deleted": set(),
}


def check(bench: Bench, seen: Snapshot) -> None:
    """Check all invariants that hold between any two calls, and process new events."""
    for view in seen.jobs.values():
        ranges_tile_what_was_handed_out(bench, view)
        sums_are_exact(bench, view)
        leases_agree(view)
        no_unit_is_tried_too_often(bench, view)
        done_has_a_result_and_nothing_else(view)
        all_done_means_finishing(view)
        assert view.state != "cancelled" or not view.leases, "10"
        somebody_looks_at_every_job(bench, seen, view)
        holders_are_counted(seen, view)
        limits_are_kept(bench, seen, view)
    runners_know_their_leases(seen)
    indexes_agree(seen)
    held_jobs_agree(seen)
    children_hear_of_their_parents(seen)
    if seen.tenants():
        parts_agree(bench, seen)
    bells_agree(bench, seen)
    load_is_the_sum(seen)
    events_follow_the_table(bench, seen)
    assert not seen.members("ct:broken"), "functions quarantine what is broken, and nothing was"


def ranges_tile_what_was_handed_out(bench: Bench, view: JobView) -> None:
    """1, 2. Leases, free, retry, dead and what is committed are disjoint and cover exactly 0..cursor-1."""
    committed = bench.jobs[view.job_id].committed
    at = 0
    for lo, hi in sorted([*view.pieces(), *committed]):
        assert lo == at and hi > lo, ("1", view.job_id, at, lo, hi)
        at = hi
    assert at == view.number("cursor") <= view.total, "2"
    assert view.number("done") == sum(hi - lo for lo, hi in committed), "2"


def sums_are_exact(bench: Bench, view: JobView) -> None:
    """3. Accumulator and parts, or the result, are the exact sum over the committed units."""
    expected = merge(total_of(lo, hi) for lo, hi in bench.jobs[view.job_id].committed)
    if view.state == "done":
        assert view.result == expected, "3"
    else:
        assert merge([view.accumulator or {}, *view.parts]) == expected, "3"


def no_unit_is_tried_too_often(bench: Bench, view: JobView) -> None:
    """18. Of programs, which Bench.fail_unit lets fail twice."""
    assert max(bench.jobs[view.job_id].failed.values(), default=0) <= 2, "18"


def leases_agree(view: JobView) -> None:
    """4."""
    assert view.leases.keys() == view.expiries.keys(), "4"


def runners_know_their_leases(seen: Snapshot) -> None:
    """4. Leases of programs are known by their runner, so that they end with it."""
    expected: dict[str, set[str]] = {}
    for view in seen.jobs.values():
        for token, text in seen.hash(keys.job_lease(view.job_id)).items() if view.is_program else ():
            runner = text.rpartition(":")[2].rpartition("/")[0]
            expected.setdefault(keys.leased(runner), set()).add(f"{view.job_id}|{token}")
    assert {key: set(seen.members(key)) for key in seen.keys if key.startswith("ct:leased:")} == expected, "4"


def done_has_a_result_and_nothing_else(view: JobView) -> None:
    """Invariant 8: a finished job has a result and no other work data."""
    assert (view.state == "done") == (view.result is not None), "8"
    if view.state == "done":
        kept = view.queue.startswith("runner.")
        assert not view.pieces() and not view.parts and (view.accumulator is not None) == kept, "8"


def all_done_means_finishing(view: JobView) -> None:
    """9. Also failed, when the result could not be derived."""
    if view.number("done") == view.total:
        assert view.state in {"finishing", "done", "failed", "cancelled"}, "9"
    else:
        assert view.state not in {"finishing", "done"}, "9"
    assert view.is_program or view.state != "running" or len(view.dead) <= 16, (
        "more than 16 dead ranges fail a job at once"
    )


def somebody_looks_at_every_job(bench: Bench, seen: Snapshot, view: JobView) -> None:
    """5, 7. And nobody looks later than something falls due, but for what the clock has stepped back since."""
    pending, unsupported = seen.waiting().get(view.job_id), seen.unsupported().get(view.job_id)
    later = seen.zset("ct:recheck").get(view.job_id)
    held = bool(seen.held(view.job_id))
    if view.number("backlog"):
        assert view.state == "queued" and not (pending or unsupported or later), "5"
        return
    assert (view.job_id in seen.deferred()) == bool(view.number("deferred")), "5"
    if view.number("deferred"):
        assert view.state in {"queued", "running", "finishing"} and not (pending or unsupported), "5"
        assert view.state != "finishing" or held or later is not None, "7"
        assert f"{view.tenant}:{view.fields['kind']}" in seen.members("ct:deferred"), "nobody would call it up"
        return
    assert pending is None or (view.state in PENDABLE and pending == view.queue), "5"
    assert unsupported is None or (view.state in PENDABLE and not pending and unsupported == _place(view)), "5"
    if view.state == "queued":
        assert pending or unsupported or held or (later is not None and view.leases), "5"
    elif view.state in PENDABLE:
        assert pending or unsupported or held or later is not None, "7"
    elif view.state == "cancelling":
        assert held or later is not None, "7"
    if view.state == "running" and later is not None and not pending and not held:
        assert later <= max(view.due(seen.now), seen.now) + bench.stepped_back, "7"
    assert later is None or view.state in {"queued", *ACTIVE}, "5"


def _place(view: JobView) -> str:
    needed = "" if view.state == "finishing" else view.fields.get("requirements", "")
    return f"{view.queue}:{view.fields['kind']}|{view.fields['version']}" + (f"|{needed}" if needed else "")


def holders_are_counted(seen: Snapshot, view: JobView) -> None:
    """The counts in the job equal the number of slots."""
    held = seen.held(view.job_id)
    assert view.number("holders") == len(held)
    assert view.number("lanes") == sum(seen.slots[worker][1] for worker in held)


def limits_are_kept(bench: Bench, seen: Snapshot, view: JobView) -> None:
    """15. At most max_running lanes compute a job; a running job with a timeout, and no other, has a deadline."""
    limit, timeout = view.number("max_running"), view.number("timeout_ms")
    assert not limit or view.running(seen.now) <= limit or bench.stepped_back, "15"
    deadline = seen.zset("ct:deadlines").get(view.job_id)
    assert (deadline is not None) == (timeout > 0 and view.state == "running"), "15"
    assert deadline is None or deadline <= seen.now + timeout + bench.stepped_back, "15"


def indexes_agree(seen: Snapshot) -> None:
    """6. And the sets of jobs by state, of those that will be purged, and of slots."""
    by_state: dict[str, set[str]] = {}
    for view in seen.jobs.values():
        by_state.setdefault(view.state, set()).add(view.job_id)
    for state in FOLLOWS:
        assert set(seen.zset(f"ct:in:{state}")) == by_state.get(state, set()), state
    shapes = Counter(
        view.fields["requirements"]
        for view in seen.jobs.values()
        if view.state not in TERMINAL and "requirements" in view.fields
    )
    assert seen.zset("ct:shapes") == shapes, "6"
    by_tenant = Counter(
        (f"ct:shapes:{view.tenant}", view.fields["requirements"])
        for view in seen.jobs.values()
        if view.state not in TERMINAL and "requirements" in view.fields
    )
    of_tenants = {name: seen.zset(name) for name in seen.keys if name.startswith("ct:shapes:")}
    assert {(name, each): count for name, some in of_tenants.items() for each, count in some.items()} == by_tenant, "6"
    programs = {view.job_id for view in seen.jobs.values() if view.is_program and view.state in {"queued", "running"}}
    assert set(seen.hash("ct:reserved")) <= set(seen.zset("ct:unschedulable")) <= programs, "19"
    ended = {
        view.job_id: view.number("ended") + view.number("ttl_ms")
        for view in seen.jobs.values()
        if view.state in TERMINAL
    }
    expiry = seen.zset("ct:expiry")
    put_off = {job for job in ended.keys() & expiry.keys() if expiry[job] > ended[job]}
    assert {**expiry, **{job: ended[job] for job in put_off}} == ended, "6"
    assert set(seen.zset("ct:slots")) == set(seen.slots)
    waiting = set(seen.unsupported().values())
    programs = {name for name in waiting if name.startswith("runner.")}
    assert waiting - programs <= set(seen.members("ct:unsupported")), "nobody would call them back"
    assert programs <= set(seen.members("ct:unsupported_programs")), "nobody would call them back"
    assert set(seen.waiting()) | set(seen.unsupported()) | set(seen.zset("ct:recheck")) <= set(seen.jobs), (
        "a deleted job is still mentioned"
    )
    mentioned = {key.split(":")[2] for key in seen.keys if key.startswith("ct:job:")}
    assert mentioned == set(seen.jobs), "keys of a deleted job are left"


def held_jobs_agree(seen: Snapshot) -> None:
    """6. Where NEXT looks for a job to help are the jobs that slots hold, by how many do."""
    expected: dict[str, dict[str, int]] = {}
    for view in seen.jobs.values():
        if holders := len(seen.held(view.job_id)):
            expected.setdefault(keys.held(view.queue, view.tenant), {})[view.job_id] = holders
            assert view.tenant in seen.members(keys.holding(view.queue)), "6"
    assert {key: seen.zset(key) for key in seen.keys if key.startswith("ct:held:")} == expected, "6"


def children_hear_of_their_parents(seen: Snapshot) -> None:
    """20. Who is blocked waits for jobs that are there, and will be told; who is skipped comes back with its root."""
    children: dict[str, dict[str, int]] = {}
    skips: dict[str, set[str]] = {}
    waking = seen.zset(keys.WAKING)
    for view in seen.jobs.values():
        needs = seen.hash(keys.job_needs(view.job_id))
        assert needs.items() <= view.parents.items(), "20"
        if view.state == "skipped":
            root = view.fields["root"]
            assert needs and (seen.is_bad(root) or root in waking), "20"
            if root in seen.jobs:
                skips.setdefault(root, set()).add(view.job_id)
        if view.state != "blocked":
            continue
        assert needs and not view.pieces() and not view.number("cursor"), "20"
        assert needs.keys() <= seen.jobs.keys(), "who is waited for is not purged"
        for parent, need in view.parents.items():
            if parent not in seen.jobs:  # it was met, and purged while this job was skipped or cancelled
                continue
            children.setdefault(parent, {})[view.job_id] = int(parent not in needs)
            if parent in needs:
                assert seen.verdict(parent, need) == "waits" or parent in waking, "20"
            else:
                assert need == "any" or seen.jobs[parent].state == "done", "20"
    stored = {job: seen.zset(keys.job_children(job)) for job in seen.jobs}
    assert {job: those for job, those in stored.items() if those} == children, "20"
    assert {job: set(those) for job in seen.jobs if (those := seen.members(keys.job_skips(job)))} == skips, "20"


def parts_agree(bench: Bench, seen: Snapshot) -> None:
    """16. What is kept by tenant is what jobs and leases say, and within the caps."""
    names = {*seen.tenants(), *(view.tenant for view in seen.jobs.values())}
    for queue in queues.ALL:
        pending = seen.zset(f"ct:pending:{queue}")
        parts = {name: seen.zset(f"ct:tenant_pending:{queue}:{name}") for name in names}
        for name in names:
            assert parts[name] == {job: at for job, at in pending.items() if seen.jobs[job].tenant == name}, "16"
        assert set(seen.zset(f"ct:order:{queue}")) == {name for name, part in parts.items() if part}, "16"
    for name in names:
        views = [view for view in seen.jobs.values() if view.tenant == name]
        backlog = {view.job_id for view in views if view.number("backlog")}
        admitted = {view.job_id for view in views if view.state in PENDABLE} - backlog
        blocked = {view.job_id for view in views if view.state == "blocked"}
        assert set(seen.zset(f"ct:blocked:{name}")) == blocked, "16"
        assert set(seen.zset(f"ct:backlog:{name}")) == backlog and set(seen.zset(f"ct:admitted:{name}")) == admitted, (
            "16"
        )
        finishing = [job for job in admitted if seen.jobs[job].state == "finishing"]
        most = seen.cap(name, "max_jobs")
        assert not most or len(admitted) - len(finishing) <= most, "16"
        assert not backlog or len(admitted) >= most > 0, "a job stays in the backlog while there is room"
        sizes_agree(seen, name, views)
        within_lanes(bench, seen, name, views)


def sizes_agree(seen: Snapshot, name: str, views: list[JobView]) -> None:
    """17. Of a tenant with a cap on stored bytes, sizes and sum are those of its jobs; of others there are none."""
    sizes = {job: int(size) for job, size in seen.hash(f"ct:stored:{name}").items()}
    capped = "stored_bytes=" in seen.hash("ct:shares").get(f"{name}|caps", "")
    assert sizes == ({view.job_id: seen.size(view.job_id) for view in views} if capped else {}), "17"
    assert int(seen.hash("ct:stored").get(name, 0)) == sum(sizes.values()), "17"


def within_lanes(bench: Bench, seen: Snapshot, name: str, views: list[JobView]) -> None:
    """Lanes of a tenant are leases of its jobs, except for some of small jobs, and at most max_lanes are active."""
    leases = {token: at for view in views for token, at in view.expiries.items()}
    uncounted = {token for view in views if view.number("small") for token in view.expiries}
    lanes = seen.zset(f"ct:lanes:{name}")
    if bench.stepped_back:  # SWEEP brings both near, each by itself, and had forgotten what was long ago by then
        known = max(seen.now, seen.now + bench.stepped_back - 60_000)
        assert {token for token, at in leases.items() if at > known} - uncounted <= set(lanes), "16"
    else:
        recent = seen.now - 60_000  # SWEEP forgets what expired long ago
        alive = {token: at for token, at in leases.items() if at > recent}
        counted = {token: at for token, at in lanes.items() if at > recent}
        assert counted.items() <= alive.items() and alive.keys() - counted.keys() <= uncounted, "16"
    most = seen.cap(name, "max_lanes")
    assert not most or seen.lanes_in_use(name) <= most or bench.stepped_back, "16"


def bells_agree(bench: Bench, seen: Snapshot) -> None:
    """The length of RQ's queue is the number of pending jobs, except for wakeups in progress and those for helpers."""
    for queue in queues.ALL:
        rung = seen.members(f"rq:queue:{queue}")
        waiting = len(seen.pending(queue))
        least = min(1, len(seen.eligible(queue))) if seen.tenants() else waiting
        assert least - bench.lost[queue] <= len(rung) <= waiting + bench.extra[queue], queue
        assert set(rung) <= {wakeups.WAKEUP_ID}
    assert [key for key in seen.keys if key.startswith("rq:job:")] == [keys.rq_job(wakeups.WAKEUP_ID)]


def load_is_the_sum(seen: Snapshot) -> None:
    """ct:load is the estimated waiting and running work by queue, without jobs that a cap prevents from starting."""
    load: Counter[str] = Counter()
    for view in seen.jobs.values():
        if view.state in {"queued", "running"}:
            kept = view.number("deferred") or view.number("backlog")
            left = 0 if kept else 1 - view.number("done") / view.total
            expected = int(view.number("est_ms") * left)
            assert view.number("load") == expected
            load[view.queue] += expected
    assert +Counter({queue: int(ms) for queue, ms in seen.hash("ct:load").items()}) == +load


def events_follow_the_table(bench: Bench, seen: Snapshot) -> None:
    """11. Also: a job's own stream has all its events since it started; small ones have none."""
    own: dict[str, list[str]] = {}
    for entry, event in seen.stream("ct:events"):
        bench.last_event = entry
        if "job" in event:
            _take_in(bench, event)
            if bench.jobs[event["job"]].started and not bench.jobs[event["job"]].new.small:
                own.setdefault(event["job"], []).append(entry)
    for view in seen.jobs.values():
        assert bench.jobs[view.job_id].states[-1] == view.state, "11"
        stream = [entry for entry, _ in seen.stream(keys.job_events(view.job_id))]
        assert stream == own.get(view.job_id, []), "11"


def _take_in(bench: Bench, event: dict[str, str]) -> None:
    history = bench.jobs[event["job"]]
    last = history.states[-1] if history.states else ""
    if event["type"] == "progress":
        assert event["state"] == last, "11"
    else:
        assert event["state"] == event["type"] and event["type"] in FOLLOWS[last], ("11", last, event)
        history.states.append(event["type"])
    history.started |= event["type"] == "running"
    assert history.done <= int(event["done"]) <= int(event["total"]), "11"
    history.done = int(event["done"])


def at_rest(seen: Snapshot) -> None:
    """14. Nothing waits, nothing is held, no bell is left."""
    assert not seen.waiting() and not seen.slots and not seen.zset("ct:recheck"), "14"
    assert not any(seen.members(f"rq:queue:{queue}") for queue in queues.ALL), "14"
    assert all(view.state in TERMINAL | {"paused", "blocked"} for view in seen.jobs.values()), "13"
    assert not seen.zset(keys.WAKING), "14"
    for view in seen.jobs.values():
        needs = seen.hash(keys.job_needs(view.job_id)) if view.state == "blocked" else ()
        states = {seen.jobs[parent].state for parent in needs}
        assert states <= {"paused", "blocked"}, "13"


def is_cut_well(view: JobView, grant: Grant, want: int) -> None:
    """A range ends on the grain or at an earlier range's end, and exceeds the requested size by at most a grain."""
    grain, offset = view.number("grain"), view.number("offset")
    halves = {lo + (hi - lo) // 2 for lo, hi in view.leases.values()}
    ends = {hi for _, hi in view.pieces()} | {view.total} | halves
    assert grant.hi in ends or (grant.hi + offset) % grain == 0
    assert grant.hi - grant.lo < want + grain
