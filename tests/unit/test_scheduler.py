"""Tests routing and waiting times with tables of cases for pure functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.jobs import scheduler
from coordinator.jobs.scheduler import Fleet
from jobs import errors
from jobs.hosts.requirements import Offer
from jobs.models import Device, Plan, Priority, QueuePosition, ReachedCap

CPU, GPU, ANY, RUNNER = Device.CPU, Device.GPU, Device.ANY, Device.RUNNER
GPU_ROW = {"memory_mib": 40_000, "compute_capability": "8.0"}
BOTH = Fleet(lanes={CPU: 4, GPU: 2})


def plan(*devices: Device, cpu_seconds: float = 1.0) -> Plan:
    return Plan(total=10, spec={}, parameters={}, devices=devices, cpu_seconds=cpu_seconds)


@pytest.mark.parametrize(
    ("devices", "asked", "queue"),
    [
        ((CPU, GPU), ANY, "any.normal"),
        ((CPU, GPU), CPU, "cpu.normal"),
        ((CPU, GPU), GPU, "gpu.normal"),
        ((CPU,), ANY, "cpu.normal"),
        ((GPU,), ANY, "gpu.normal"),
    ],
)
def test_the_queue_follows_the_device_and_what_has_a_kernel(
    devices: tuple[Device, ...], asked: Device, queue: str
) -> None:
    assert scheduler.route(plan(*devices), asked, False, Priority.NORMAL, BOTH).queue == queue


def test_a_device_without_a_kernel_is_refused_by_name() -> None:
    with pytest.raises(errors.InvalidRequest, match="this job cannot run on device gpu; it runs on cpu") as caught:
        scheduler.route(plan(CPU), GPU, False, Priority.HIGH, BOTH)
    assert caught.value.field == "device"


def test_a_kinds_reason_is_in_the_refusal_and_in_the_note() -> None:
    traced = Plan(total=1, spec={}, parameters={}, cpu_seconds=1.0, cpu_only="a trace")
    with pytest.raises(errors.InvalidRequest, match=r"it runs on cpu \(a trace\)"):
        scheduler.route(traced, GPU, False, Priority.HIGH, BOTH)
    route = scheduler.route(traced, ANY, True, Priority.NORMAL, BOTH)
    assert route.notes == ("runs on the CPU: the job has no GPU kernel (a trace)",)


def test_gpu_preferred_waits_for_a_gpu_while_its_wait_is_not_worse() -> None:
    route = scheduler.route(plan(CPU, GPU), ANY, True, Priority.LOW, BOTH)
    assert (route.queue, route.prefer) == ("gpu.low", True)


@pytest.mark.parametrize(
    ("devices", "fleet", "queue", "words"),
    [
        ((CPU,), BOTH, "cpu.normal", "no GPU kernel"),
        ((CPU, GPU), Fleet(lanes={CPU: 4}), "any.normal", "no GPU worker is alive"),
        ((CPU, GPU), Fleet(lanes={CPU: 4, GPU: 1}, load_seconds={"gpu.high": 60}), "any.normal", "longer"),
    ],
)
def test_gpu_preferred_says_why_it_goes_elsewhere(
    devices: tuple[Device, ...], fleet: Fleet, queue: str, words: str
) -> None:
    route = scheduler.route(plan(*devices), ANY, True, Priority.NORMAL, fleet)
    assert (route.queue, route.prefer) == (queue, False)
    assert words in route.notes[0]


@pytest.mark.parametrize(
    ("queue", "load", "seconds"),
    [
        ("any.normal", {}, 0.0),
        ("any.normal", {"any.normal": 12, "any.low": 99}, 2.0),
        ("any.normal", {"cpu.high": 6, "gpu.interactive": 6}, 2.0),
        ("cpu.normal", {"gpu.high": 100, "cpu.normal": 8}, 2.0),
        ("gpu.high", {"gpu.normal": 100, "any.high": 4}, 2.0),
    ],
)
def test_the_wait_is_work_of_the_same_priority_or_above_over_the_lanes_that_serve_it(
    queue: str, load: dict[str, float], seconds: float
) -> None:
    assert scheduler.estimate_wait(queue, Fleet(lanes={CPU: 4, GPU: 2}, load_seconds=load)) == seconds


@pytest.mark.parametrize(
    ("waiting", "tenant", "seconds"),
    [
        ({}, "a", 1.25),
        ({"any.normal": {"a": 3}}, "a", 5.0),
        ({"any.normal": {"a": 3}, "cpu.normal": {"a": 1}, "gpu.normal": {"a": 9}}, "a", 6.25),
        ({"any.normal": {"a": 3, "b": 50}}, "a", 10.0),
        ({"any.normal": {"a": 3, "c": 50}}, "a", 15.0),
        ({"any.normal": {"a": 3, "c": 50}}, "c", 67.5),
        ({"any.low": {"a": 3}}, "a", 1.25),
        ({"any.normal": {"a": 10**6}}, "a", 100.0),
    ],
)
def test_a_job_waits_for_the_turns_before_its_own_where_those_end_before_all_work(
    waiting: dict[str, dict[str, int]], tenant: str, seconds: float
) -> None:
    """Four workers and 400 s of waiting work. Tenants take turns by weight, and c has twice the weight."""
    fleet = Fleet(
        workers={CPU: 4}, lanes={CPU: 4}, load_seconds={"any.normal": 400.0}, waiting=waiting, weights={"c": 2}
    )
    assert scheduler.estimate_wait("cpu.normal", fleet, tenant) == seconds


def test_work_of_a_higher_priority_is_done_before() -> None:
    fleet = Fleet(workers={CPU: 4}, lanes={CPU: 4}, load_seconds={"any.high": 40.0, "any.normal": 400.0})
    assert scheduler.estimate_wait("any.normal", fleet) == 11.25


def test_a_worker_that_idles_takes_a_new_job_at_once() -> None:
    busy = Fleet(workers={CPU: 4}, lanes={CPU: 4}, load_seconds={"any.high": 400.0}, idle={CPU: 1})
    assert scheduler.estimate_wait("any.normal", busy) == 0.0
    taken = replace(busy, waiting={"cpu.high": {"default": 1}})
    assert scheduler.estimate_wait("any.normal", taken) == 100.0


ELEVEN_HOURS = 11 * 3600.0


@pytest.mark.parametrize(
    ("queue", "place", "seconds"),
    [
        ("cpu.normal", None, 15.0),
        ("cpu.normal", QueuePosition(before=0), 5.0),
        ("cpu.normal", QueuePosition(before=1), 10.0),
        ("cpu.normal", QueuePosition(in_backlog=0, max_jobs=1), None),
        ("cpu.normal", QueuePosition(before=0, max_lanes=4), None),
        (
            "cpu.normal",
            QueuePosition(before=0, units=ReachedCap(cap="max_units", used=9, most=9, seconds=3600.2)),
            3601.0,
        ),
        ("gpu.normal", None, None),
        ("runner.normal", None, None),
        ("runner.normal", QueuePosition(before=0), None),
    ],
)
def test_a_start_is_estimated_or_unknown_but_never_too_early(
    queue: str, place: QueuePosition | None, seconds: float | None
) -> None:
    """One CPU worker and one runner have eleven hours of work, and two jobs of the tenant are queued."""
    load = dict.fromkeys(("cpu.normal", "runner.normal"), ELEVEN_HOURS)
    waiting = {name: {"default": 2} for name in load}
    workers = {CPU: 1, RUNNER: 1}
    fleet = Fleet(workers=workers, lanes=workers, load_seconds=load, waiting=waiting, runners={"a": {"cpus": 1}})
    assert scheduler.estimate_start(queue, fleet, "default", "collatz", 1, {}, place) == seconds


def test_a_job_starts_at_once_on_an_idle_worker_that_fits() -> None:
    one = {CPU: 1, RUNNER: 1}
    fleet = Fleet(workers=one, lanes=one, idle=one, runners={"a": {"cpus": 1}}, kinds={CPU: [{"collatz": 1}]})

    def start(queue: str, version: int, place: QueuePosition | None = None, **needed: int) -> float | None:
        return scheduler.estimate_start(queue, fleet, "default", "collatz", version, needed, place)

    assert start("cpu.normal", 1) == start("runner.normal", 1) == 0.0
    assert start("cpu.normal", 2) is None, "no worker computes this version"
    assert start("runner.normal", 1, cpus=2) is None, "no runner has two CPUs"
    queued = replace(fleet, waiting={"cpu.normal": {"default": 1}}, load_seconds={"cpu.normal": 60.0})
    place = QueuePosition(before=0)
    assert scheduler.estimate_start("cpu.normal", queued, "default", "collatz", 1, {}, place) == 0.0


def test_only_what_no_live_runner_has_is_unschedulable() -> None:
    def why(needed: dict[str, object], queue: str = "runner.normal", **resting: tuple[Offer, str]) -> str | None:
        runners: dict[str, Offer] = {"a": {"cpus": 8, "gpus": []}}
        fleet = Fleet(workers={RUNNER: 1}, lanes={RUNNER: 1}, runners=runners, resting=resting)
        return scheduler.explain_unschedulable(queue, needed, fleet, "default")

    big: dict[str, object] = {"cpus": 64}
    assert why({}) is None and why({"cpus": 8}) is None
    assert why(big) == "no runner has 64 CPUs; a has 8"
    assert why(big, b=({"cpus": 64}, "it is drained")) is None
    assert why(big, "cpu.normal") is None
    assert "start a runner" in (scheduler.explain_unschedulable("runner.low", {}, Fleet(), "default") or "")
    labels = Fleet(workers={RUNNER: 1}, runners={"a": {}}, required={"default": frozenset({"ssd"})})
    assert "invite --labels ssd" in (scheduler.explain_unschedulable("runner.low", {}, labels, "default") or "")


def test_without_a_worker_there_is_no_estimate() -> None:
    assert scheduler.estimate_wait("gpu.normal", Fleet(lanes={CPU: 4})) is None


@pytest.mark.parametrize(
    ("state", "before", "holders", "words"),
    [
        ("paused", None, 0, "paused"),
        ("queued", 3, 0, "3 jobs are ahead"),
        ("queued", 0, 0, "starts when a worker of the queue cpu.normal is free"),
        ("running", None, 0, "last leases"),
        ("running", None, 1, None),
        ("done", None, 0, None),
    ],
)
def test_a_job_says_why_it_waits(state: str, before: int | None, holders: int, words: str | None) -> None:
    reason = scheduler.waiting_because(state, "cpu.normal", QueuePosition(before=before), holders, BOTH)
    assert reason is None if words is None else words in (reason or "")


def test_a_job_says_that_workers_are_starting_if_none_is_ready() -> None:
    fleet = Fleet(workers={CPU: 2}, lanes={CPU: 4}, starting={CPU: 2})
    words = "no worker is ready yet, but some are starting; the job is next in the queue cpu.normal"
    assert scheduler.waiting_because("queued", "cpu.normal", QueuePosition(before=0), 0, fleet) == words
    fleet = replace(fleet, starting={CPU: 1})
    assert (
        scheduler.waiting_because("queued", "cpu.normal", QueuePosition(before=0), 0, fleet)
    ) == "starts when a worker of the queue cpu.normal is free"


@pytest.mark.parametrize(
    ("load", "before", "words"),
    [
        (
            {"any.normal": 5.0},
            0,
            "work of a higher priority is served first (any.normal); the job is next in the queue any.low",
        ),
        ({"cpu.high": 5.0, "any.normal": 0.0}, 2, "first (cpu.high); 2 jobs are ahead"),
        ({"any.low": 5.0}, 0, "starts when a worker of the queue any.low is free"),
    ],
)
def test_a_low_job_beside_a_steady_stream_says_that_others_go_first(
    load: dict[str, float], before: int, words: str
) -> None:
    fleet = Fleet(lanes={CPU: 4}, load_seconds=load)
    assert words in (scheduler.waiting_because("queued", "any.low", QueuePosition(before=before), 0, fleet) or "")


def test_a_job_whose_version_no_worker_has_says_so() -> None:
    def reason(*fleet: dict[str, int], device: Device = CPU) -> str:
        told = Fleet(lanes={CPU: 1}, kinds={device: fleet})
        return scheduler.waiting_because("running", "cpu.normal", QueuePosition(), 0, told, "collatz", 1) or ""

    assert "no live worker of its queue computes version 1 of collatz: the workers have version 2, 3" in reason(
        {"collatz": 2}, {"collatz": 3}
    )
    assert "the workers lack the kind" in reason({"thread": 1})
    assert "last leases" in reason({"collatz": 2}, {"collatz": 1})
    assert "last leases" in reason({"collatz": 2}, {}), "a worker that does not tell may have it"
    assert "last leases" in reason({"collatz": 2}, device=GPU), "it does not serve the queue"


def test_a_job_whose_kernel_is_being_compiled_says_so() -> None:
    def reason(queue: str, **kinds: int) -> str:
        told = Fleet(
            lanes={CPU: 1, GPU: 1},
            kinds={CPU: [{"thread": 1, **kinds}], GPU: [{"thread": 1}]},
            compiling={"cpu-1": (CPU, frozenset({"collatz"}))},
        )
        return scheduler.waiting_because("queued", queue, QueuePosition(before=0), 0, told, "collatz", 1) or ""

    for queue in ("cpu.normal", "any.normal"):
        assert reason(queue).startswith("cpu-1 is compiling the kernel of collatz, which takes")
    assert "compiling" not in reason("cpu.normal", collatz=1), "another worker has the kernel"
    assert "the workers lack the kind" in reason("gpu.normal")


@pytest.mark.parametrize(("seconds", "small"), [(0.001, True), (0.05, True), (0.051, False), (1e12, False)])
def test_a_job_of_50_ms_is_small(seconds: float, small: bool) -> None:
    assert scheduler.is_small(plan(CPU, cpu_seconds=seconds)) is small


def test_a_device_that_was_measured_to_be_fast_has_the_shorter_wait() -> None:
    """Each queue has 10 s of waiting work. A GPU lane does 50 times the work of a CPU lane."""
    load = {"gpu.normal": 10.0, "any.normal": 10.0, "cpu.normal": 10.0}
    fleet = Fleet(lanes={CPU: 4, GPU: 2}, load_seconds=load, speeds={GPU: 50.0})
    waits = {queue: scheduler.estimate_wait(queue, fleet) for queue in load}
    assert waits == {"gpu.normal": 0.2, "any.normal": 0.288, "cpu.normal": 5.0}
    assert scheduler.route(plan(CPU, GPU), ANY, True, Priority.NORMAL, fleet).queue == "gpu.normal"


def test_a_program_says_what_no_runner_has() -> None:
    def reason(needed: dict[str, object], before: int | None = None, **runners: int) -> str:
        offers = {name: {"cpus": 8, "gpus": [GPU_ROW] * gpus} for name, gpus in runners.items()}
        fleet = Fleet(workers={RUNNER: len(runners)}, lanes={RUNNER: 8 * len(runners)}, runners=offers)
        place = QueuePosition(before=before)
        return scheduler.waiting_because("queued", "runner.normal", place, 0, fleet, needed=needed) or ""

    assert "start a runner with ./deploy-cluster.sh local" in reason({"gpus": 4})
    assert reason({"gpus": 4}, a=1, b=2) == "no runner has 4 GPUs; b has 2"
    assert reason({"gpus": 4, "cpus": 9}, a=1) == "no runner has 4 GPUs and 9 CPUs; a has 1 and 8"
    assert reason({"gpus": 2}, a=1, b=2) == "starts when a program ends on b"
    assert reason({"gpus": 2}, 0, b=2) == "starts when a program ends on b"
    assert reason({}, 0, b=2, c=2) == "starts when a program ends on one of 2 runners"


def test_a_runner_that_takes_no_work_is_named_with_its_reason_where_it_alone_has_what_a_job_needs() -> None:
    full = "its disk is full: 3 MiB are free"
    ssd, hdd = ({"cpus": 8, "labels": [label]} for label in ("ssd", "hdd"))

    def reason(needed: dict[str, object], **runners: dict[str, object]) -> str:
        count = len(runners)
        fleet = Fleet(
            workers={RUNNER: count},
            lanes={RUNNER: 8 * count},
            runners=runners,
            resting={"runner-1": (ssd, full)},
            cordoned={"runner-1": (RUNNER, full)},
        )
        return (
            scheduler.waiting_because("queued", "runner.normal", QueuePosition(before=0), 0, fleet, needed=needed) or ""
        )

    needs_ssd: dict[str, object] = {"labels": ["ssd"]}
    assert reason(needs_ssd) == f"runner-1 has label ssd, but accepts no work: {full}"
    assert reason(needs_ssd, hdd=hdd) == f"runner-1 has label ssd, but accepts no work: {full}"
    assert reason({}) == f"runner-1 accepts no work: {full}"
    assert reason({}, hdd=hdd) == "starts when a program ends on hdd"
    assert reason(needs_ssd, other=ssd) == "starts when a program ends on other"
    assert reason({"labels": ["gpu"]}, hdd=hdd) == "no runner has label gpu; hdd has hdd"
    assert "accepts no work: " + full in reason({"labels": ["gpu"]})


def free_offer(tenant: str = "", works_for: str = "", replicas: int = 1, memory_mib: int = 8000) -> dict[str, object]:
    """Return the resources that a runner has for programs while its replicas of services are running."""
    return {"cpus": 8, "memory_mib": memory_mib, "tenant": tenant, "works_for": works_for, "replicas": replicas}


ONE_TENANT = "without RUNNER_UIDS it runs jobs of one tenant at a time"


@pytest.mark.parametrize(
    ("left", "kind", "needed", "words"),
    [
        (
            free_offer(tenant="a", works_for="a"),
            "command",
            {},
            f"starts when a service of another tenant stops on runner-1; {ONE_TENANT}",
        ),
        (free_offer(works_for="a"), "command", {}, f"runner-1 runs programs of another tenant, and {ONE_TENANT}"),
        (free_offer(tenant="b", works_for="b"), "command", {}, "starts when a program ends on runner-1"),
        (
            free_offer(memory_mib=3000),
            "command",
            {"memory_mib": 4000},
            "starts when service tiny stops on runner-1; the job needs 4000 MiB of memory, and 3000 is left",
        ),
        (
            free_offer(memory_mib=3000),
            "service",
            {"memory_mib": 4000},
            "starts when service tiny stops on runner-1; the",
        ),
        (free_offer(replicas=0), "service", {}, "starts when service tiny stops on runner-1; with RUNNER_UIDS"),
        (free_offer(replicas=0), "command", {}, "starts when a program ends on runner-1"),
        (free_offer(), "service", {}, "the job is the next of its tenant in the queue runner.normal"),
    ],
)
def test_a_program_says_which_services_and_whose_programs_it_waits_for(
    left: dict[str, object], kind: str, needed: dict[str, object], words: str
) -> None:
    whole = {"cpus": 8, "memory_mib": 8000}
    fleet = Fleet(
        workers={RUNNER: 1},
        lanes={RUNNER: 4},
        runners={"runner-1": whole},
        beside_replicas={"runner-1": left},
        services={"runner-1": [("tiny", "b")]},
    )

    def reason(fleet: Fleet, **more: object) -> str:
        place = QueuePosition(before=0, tenant="b", **more)  # type: ignore[arg-type]
        return scheduler.waiting_because("queued", "runner.normal", place, 0, fleet, kind, 1, needed=needed) or ""

    assert reason(fleet).startswith(words)
    with_another = replace(fleet, runners={"runner-1": whole, "runner-2": whole})
    assert "on runner-1" not in reason(with_another), "the other one has room"
    if "a program ends" in words or "runs programs" in words:
        assert reason(fleet, kept="runner-1") == "starts next on runner-1, which is reserved for it"


def test_a_program_without_leases_whose_units_have_all_begun_waits_for_their_next_attempt() -> None:
    fleet = Fleet(workers={RUNNER: 1}, lanes={RUNNER: 8}, runners={"runner-1": {"cpus": 8}})

    def reason(leases: int) -> str | None:
        return scheduler.waiting_because("running", "runner.normal", QueuePosition(leases=leases), 0, fleet, "command")

    assert reason(0) == "failed units wait for their next attempt"
    assert reason(1) == "its last leases are being computed"


def test_a_service_that_waits_is_not_told_to_get_more_slots() -> None:
    fleet = Fleet(workers={RUNNER: 1}, lanes={RUNNER: 8}, runners={"runner-1": {"cpus": 8}})
    reason = scheduler.waiting_because("queued", "runner.normal", QueuePosition(), 0, fleet, "service", left=1)
    assert reason == "starts when a program ends on runner-1"


@pytest.mark.parametrize(
    ("left", "max_running", "needed", "words"),
    [
        (0, 0, {"cpus": 2}, "its last leases are being computed"),
        (7, 0, {"cpus": 2}, "starts when a program ends on runner-1"),
        (7, 0, {}, "starts when a program ends on runner-1"),
        (7, 3, {"cpus": 2}, "the job has reached max_running: 3 lanes compute it"),
    ],
)
def test_a_program_that_runs_says_why_its_other_units_do_not(
    left: int, max_running: int, needed: dict[str, object], words: str
) -> None:
    fleet = Fleet(workers={RUNNER: 1}, lanes={RUNNER: 8}, runners={"runner-1": {"cpus": 8}})
    place = QueuePosition(leases=3)
    reason = scheduler.waiting_because(
        "running", "runner.normal", place, 0, fleet, "command", max_running=max_running, needed=needed, left=left
    )
    assert reason == words


@pytest.mark.parametrize(
    ("leases", "words"),
    [
        (0, "starts next on runner-2"),
        (1, "starts when a program ends on runner-2"),
        (3, "starts when 3 programs end on runner-2"),
    ],
)
def test_a_program_says_which_runner_is_kept_for_it(leases: int, words: str) -> None:
    fleet = Fleet(workers={RUNNER: 1}, lanes={RUNNER: 8}, runners={"runner-2": {"cpus": 8}})
    place = QueuePosition(kept="runner-2", kept_leases=leases)
    reason = scheduler.waiting_because("queued", "runner.normal", place, 0, fleet, needed={"cpus": 8})
    assert reason == f"{words}, which is reserved for it"


def test_a_job_waits_for_the_service_that_its_reserved_runner_alone_runs() -> None:
    fleet = Fleet(
        workers={RUNNER: 1},
        lanes={RUNNER: 2},
        runners={"runner-1": {"cpus": 8}},
        services={"runner-1": [("tiny", "default")]},
        slots={"runner-1": 2},
        free_slots={"runner-1": 2},
    )
    place = QueuePosition(kept="runner-1", kept_leases=1)
    reason = scheduler.waiting_because("queued", "runner.normal", place, 0, fleet, needed={"cpus": 8})
    assert reason == "starts when service tiny stops on runner-1"


@pytest.mark.parametrize(
    ("free", "reserved", "needed", "words"),
    [
        (0, {}, {}, "starts when a program ends on runner-1"),
        (1, {"runner-1": "65dd4293aaaaaaaa"}, {}, "runner-1 is reserved for job 65dd4293"),
        (0, {"runner-1": "65dd4293aaaaaaaa"}, {}, "runner-1 is reserved for job 65dd4293"),
        (1, {}, {}, "starts next on runner-1"),
        (1, {}, {"cpus": 6}, "starts when runner-1 has 6 CPUs free"),
    ],
)
def test_a_program_names_the_one_thing_that_it_waits_for(
    free: int, reserved: dict[str, str], needed: dict[str, object], words: str
) -> None:
    fleet = Fleet(
        workers={RUNNER: 1},
        lanes={RUNNER: 2},
        runners={"runner-1": {"cpus": 8}},
        free_slots={"runner-1": free},
        reserved=reserved,
    )
    for state, before in (("queued", 0), ("running", None)):
        place = QueuePosition(before=before)
        found = scheduler.waiting_because(state, "runner.normal", place, 0, fleet, "command", needed=needed, left=1)
        assert found == words


def test_a_job_does_not_wait_for_a_busy_worker_while_one_is_idle() -> None:
    fleet = Fleet(workers={CPU: 1}, lanes={CPU: 2}, idle={CPU: 1})
    reason = scheduler.waiting_because("queued", "cpu.normal", QueuePosition(before=0), 0, fleet)
    assert reason == "starts in a moment on an idle worker"


def test_a_job_for_gpus_says_that_programs_have_them() -> None:
    fleet = Fleet(parked=1, lanes={CPU: 2}, workers={CPU: 1})
    reason = scheduler.waiting_because("queued", "gpu.normal", QueuePosition(before=0), 0, fleet)
    assert reason == "programs use the GPUs of all workers that serve the queue gpu.normal"
    assert "programs" not in (
        scheduler.waiting_because("queued", "runner.normal", QueuePosition(before=0), 0, fleet) or ""
    )


def test_workers_that_are_drained_are_not_missing() -> None:
    def why(queue: str, fleet: Fleet) -> str:
        return scheduler.waiting_because("queued", queue, QueuePosition(before=0), 0, fleet) or ""

    alone = Fleet(drained={CPU: 1})
    assert why("any.normal", alone) == (
        "the only worker that serves the queue any.normal is drained; reactivate one with: cluster drain WORKER --off"
    )
    assert why("gpu.normal", alone) == "no live worker serves the queue gpu.normal"
    assert why("any.normal", Fleet(drained={CPU: 2, GPU: 1})).startswith(
        "all 3 workers that serve the queue any.normal"
    )
    assert "drained" not in why("any.normal", Fleet(drained={CPU: 1}, lanes={CPU: 2}, workers={CPU: 1}))
    assert "start a runner" in why("runner.normal", alone)
    assert "the queue runner.normal is drained" in why("runner.normal", Fleet(drained={RUNNER: 1}))


def test_programs_are_for_runners_alone() -> None:
    assert scheduler.route(plan(RUNNER), ANY, False, Priority.LOW, BOTH).queue == "runner.low"
    with pytest.raises(errors.InvalidRequest, match="jobs of runners"):
        scheduler.route(plan(RUNNER), ANY, True, Priority.LOW, BOTH)
    with pytest.raises(errors.InvalidRequest, match="it runs on cpu"):
        scheduler.route(plan(CPU), RUNNER, False, Priority.LOW, BOTH)
    assert scheduler.estimate_wait("any.normal", Fleet(lanes={RUNNER: 4})) is None


# -- labels -----------------------------------------------------------------------------------------------------------

TRUSTED = frozenset({"trusted"})
PLAIN = Fleet(workers={CPU: 4, GPU: 2}, lanes={CPU: 16, GPU: 4}, load_seconds={"any.normal": 32})


def labelled(part: Fleet) -> Fleet:
    """Return all hosts, some of which tenant a can use."""
    return replace(PLAIN, required={"a": TRUSTED}, labelled={TRUSTED: part})


def test_hosts_that_may_not_compute_for_a_tenant_do_not_shorten_its_wait() -> None:
    fleet = labelled(Fleet(workers={CPU: 1}, lanes={CPU: 4}, load_seconds=PLAIN.load_seconds))
    assert scheduler.estimate_wait("any.normal", fleet, "b") == pytest.approx(5 / 6, abs=0.001)
    assert scheduler.estimate_wait("any.normal", fleet, "a") == 5.0, "a turn"
    assert scheduler.estimate_wait("gpu.normal", fleet, "a") is None


def test_gpu_preferred_counts_the_gpus_of_hosts_with_the_labels() -> None:
    fleet = replace(labelled(Fleet(workers={CPU: 1}, lanes={CPU: 4})), load_seconds={})
    routes = [scheduler.route(plan(CPU, GPU), ANY, True, Priority.NORMAL, fleet, tenant) for tenant in ("a", "b")]
    assert [(route.queue, route.prefer) for route in routes] == [("any.normal", False), ("gpu.normal", True)]


@pytest.mark.parametrize("queue", ["any.normal", "cpu.low", "gpu.high", "runner.normal"])
def test_what_no_host_with_the_labels_serves_says_which_and_what_to_do(queue: str) -> None:
    def why(tenant: str, part: Fleet) -> str:
        place = QueuePosition(before=0, tenant=tenant)
        return scheduler.waiting_because("queued", queue, place, 0, labelled(part), "collatz", 1) or ""

    said = why("a", Fleet())
    assert "tenant a requires hosts with the labels trusted" in said and "invite --labels trusted" in said
    assert "labels" not in why("b", Fleet())
    assert "labels" not in why("a", Fleet(workers=dict.fromkeys(Device, 1), lanes=dict.fromkeys(Device, 2)))
    assert "drained" in why("a", Fleet(drained=dict.fromkeys(Device, 1)))
