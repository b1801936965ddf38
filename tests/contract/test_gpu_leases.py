"""Tests GPUs in the functions: claims of workers and runners, shares of a device, and wakeups for mixed fleets."""

from __future__ import annotations

import random

import pytest

from jobs.models import Device
from jobs.store import fleet, keys
from jobs.store.server import functions
from jobs.store.work.lease_store import Claimed
from runner import run
from runner.programs import guard
from tests.contract.lease_model import Bench


def test_a_gpu_is_one_workers_until_it_gives_it_up_or_dies(bench: Bench) -> None:
    store = bench.store
    assert store.fleet.claim(["GPU-1"], "a").held and store.fleet.claim(["GPU-1"], "a").held
    assert not store.fleet.claim(["GPU-1"], "b").held
    assert store.fleet.claim(["GPU-2"], "b").held
    store.fleet.give_up(["GPU-1"], "b")
    assert not store.fleet.claim(["GPU-1"], "b").held, "nobody gives up another's"
    store.fleet.give_up(["GPU-1"], "a")
    assert store.fleet.claim(["GPU-1"], "b").held
    assert 0 < bench.store.client.pttl("ct:gpu:GPU-1") <= functions.GPU_TTL_MS


def test_shares_of_a_device_add_up_in_the_job(bench: Bench) -> None:
    job, client = bench.submit(total=10), bench.store.client
    bench.hold("g")
    for joules in (1.5, 0.25, None):
        grant = bench.grant(job, 2, worker="g")
        bench.store.leases.commit(
            job, grant.token, grant.hi, b"{}", ms=70, worker="g", device=Device.GPU, device_ms=40, joules=joules
        )
    used = {name.decode(): value for name, value in client.hgetall(f"ct:job:{job}").items() if name[:4] == b"use|"}
    assert used == {
        "use|gpu|g|units": b"6",
        "use|gpu|g|ms": b"210",
        "use|gpu|g|leases": b"3",
        "use|gpu|g|device_ms": b"120",
        "use|gpu|g|mj": b"1750",
    }


@pytest.mark.parametrize(("queue", "bells"), [("gpu.normal", 3), ("cpu.normal", 0), ("any.normal", 4)])
def test_the_first_grant_rings_for_the_idle_workers_of_its_own_device(bench: Bench, queue: str, bells: int) -> None:
    """Busy CPU workers do not prevent waking idle GPU workers."""
    for name in ("c1", "c2", "c3"):
        bench.store.fleet.heartbeat(name, "1", {"device": "cpu"})
    for name in ("g1", "g2", "g3", "g4"):
        bench.store.fleet.heartbeat(name, "1", {"device": "gpu"})
    for worker in ("c1", "c2"):
        bench.submit(total=1, queue="cpu.high")
        bench.hold(worker, ("cpu.high",))
    job = bench.submit(total=1000, queue=queue)
    own = "c3" if queue.startswith("cpu") else "g1"
    assert bench.hold(own, (queue,)) == job
    before = bench.store.client.llen(f"rq:queue:{queue}")
    bench.grant(job, 1, worker=own)
    rung = bench.store.client.llen(f"rq:queue:{queue}") - before
    assert rung == bells


# -- GPUs that runners share with GPU workers -------------------------------------------------------------------------

PRIORITIES = ("interactive", "high", "normal", "low")


@pytest.fixture
def shared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Start a runner r and GPU workers a and b, whose claims do not expire by Redis' clock."""
    monkeypatch.setattr(fleet, "GPU_TTL_MS", 600_000)
    bench.store.fleet.heartbeat("r", "1", {"device": "runner"})
    for name in ("a", "b"):
        bench.store.fleet.heartbeat(name, "1", {"device": "gpu"})
    return bench


def claim(bench: Bench, gpus: str, worker: str, priority: str = "") -> Claimed:
    """Claim GPUs, each named by a letter."""
    return bench.store.fleet.claim([f"GPU-{letter}" for letter in gpus], worker, priority)


def give_up(bench: Bench, gpus: str, worker: str, priority: str = "") -> None:
    bench.store.fleet.give_up([f"GPU-{letter}" for letter in gpus], worker, priority)


def test_several_gpus_are_claimed_all_or_none(shared: Bench) -> None:
    assert claim(shared, "y", "a").held
    assert claim(shared, "xyz", "r") == Claimed(held=False, by="worker")
    assert not shared.client.exists(keys.gpu("GPU-x"), keys.gpu("GPU-z"))
    give_up(shared, "y", "a")
    assert claim(shared, "xyz", "r").held
    assert claim(shared, "x", "a") == Claimed(held=False, by="program")


def test_a_gpu_worker_hears_that_a_program_waits_and_gets_no_gpu_meanwhile(shared: Bench) -> None:
    assert claim(shared, "x", "a", "normal") == Claimed(held=True)
    assert not claim(shared, "xy", "r", "high").held
    assert not claim(shared, "x", "r", "low").held
    assert claim(shared, "x", "a", "normal") == Claimed(held=True, wanted="high")
    assert claim(shared, "y", "b") == Claimed(held=False, by="wanted"), "the program needs both"
    give_up(shared, "x", "a")
    assert claim(shared, "x", "a", "normal") == Claimed(held=False, by="wanted")
    assert claim(shared, "xy", "r", "high").held


def test_a_wish_that_is_not_repeated_is_forgotten(shared: Bench) -> None:
    assert claim(shared, "x", "a", "normal").held
    claim(shared, "x", "r", "high")
    shared.advance(14_999)
    assert claim(shared, "x", "a", "normal").wanted == "high"
    shared.advance(1)
    assert claim(shared, "x", "a", "normal").wanted == ""
    assert shared.client.pttl(keys.gpu_wish("GPU-x", "wanted")) > 0


def test_kernels_of_a_higher_priority_go_first(shared: Bench) -> None:
    assert claim(shared, "x", "r", "low").held
    assert claim(shared, "x", "a", "high") == Claimed(held=False, by="program")
    give_up(shared, "x", "r", "low")
    assert claim(shared, "x", "r", "low") == Claimed(held=False, by="worker")
    assert claim(shared, "x", "b", "low") == Claimed(held=False, by="wanted")
    assert claim(shared, "x", "a", "high").held


def test_a_program_that_ends_leaves_the_next_one_three_seconds(shared: Bench) -> None:
    assert claim(shared, "x", "r", "normal").held
    give_up(shared, "x", "r", "normal")
    assert claim(shared, "x", "a", "normal").by == "wanted"
    shared.advance(3000)
    assert claim(shared, "x", "a", "normal").held


def test_a_runners_claim_outlives_what_is_suspended_there_whoever_asks(shared: Bench) -> None:
    assert claim(shared, "x", "r", "normal").held
    for _ in range(3):
        assert not claim(shared, "x", "a", "high").held
    left = shared.client.pttl(keys.gpu("GPU-x"))
    assert left > (run.TTL_SECONDS + guard.LONGEST_SUSPENSION + 10) * 1000 and left <= functions.PROGRAM_GPU_TTL_MS
    shared.client.pexpire(keys.gpu("GPU-x"), 3_600_000)  # Redis' clock has stepped back
    assert not claim(shared, "x", "a").held
    assert shared.client.pttl(keys.gpu("GPU-x")) <= functions.PROGRAM_GPU_TTL_MS


@pytest.mark.parametrize("leaving", [False, True])
def test_a_runner_that_leaves_or_is_born_again_has_no_claims(shared: Bench, leaving: bool) -> None:
    assert claim(shared, "xy", "r", "normal").held and claim(shared, "z", "a").held
    shared.store.fleet.heartbeat("r", "1", {"device": "runner"})
    assert claim(shared, "x", "a", "high").by == "program"
    shared.store.fleet.heartbeat("r", "1" if leaving else "2", {"device": "runner"}, leaving=leaving)
    assert claim(shared, "xy", "b").held and claim(shared, "z", "a").held
    assert not shared.client.exists(keys.claimed("r"))


def test_a_wish_from_before_the_clock_stepped_back_counts_no_more(shared: Bench) -> None:
    assert claim(shared, "x", "a", "normal").held
    claim(shared, "x", "r", "high")
    shared.advance(-3_600_000)
    assert claim(shared, "x", "a", "normal").wanted == ""


def test_broken_wishes_and_claims_stop_nobody(shared: Bench) -> None:
    shared.client.set(keys.gpu_wish("GPU-x", "wanted"), "nonsense")
    shared.client.zadd(keys.gpu_wish("GPU-y", "wanted"), {"urgent": 1e15, "high": 1e15})
    assert claim(shared, "xy", "a", "low").held
    shared.client.delete(keys.gpu("GPU-x"))
    shared.client.lpush(keys.gpu("GPU-x"), "nonsense")
    assert claim(shared, "x", "b").held


@pytest.mark.parametrize("seed", range(3))
def test_no_gpu_ever_has_two_owners(shared: Bench, seed: int) -> None:
    """Claims, renewals, returns and claims that expire, in any order: a claim that is granted takes nobody's."""
    pick, owners = random.Random(seed), dict[str, str]()
    shared.store.fleet.heartbeat("s", "1", {"device": "runner"})
    granted = 0
    for _ in range(400):
        for gpu in owners:  # who was refused has shortened it
            shared.client.pexpire(keys.gpu(f"GPU-{gpu}"), 600_000)
        gpus = "".join(sorted(pick.sample("wxyz", pick.choice([1, 1, 2, 3]))))
        worker, how = pick.choice("abrs"), pick.choice(["claim", "claim", "renew", "give up", "expire", "time"])
        if how == "renew":
            gpus = "".join(gpu for gpu, owner in sorted(owners.items()) if owner == worker)
        if how == "time":
            shared.advance(pick.choice([1000, 5000, 15_000]))
        elif how == "expire":
            shared.client.delete(keys.gpu(f"GPU-{gpus[0]}"))
            owners.pop(gpus[0], None)
        elif how == "give up":
            give_up(shared, gpus, worker, "normal")
            owners = {gpu: owner for gpu, owner in owners.items() if owner != worker or gpu not in gpus}
        elif gpus:
            others = {owners[gpu] for gpu in gpus if gpu in owners} - {worker}
            held = claim(shared, gpus, worker, pick.choice(PRIORITIES)).held
            assert not (held and others) and (held or how == "claim"), "who has a GPU keeps it while it renews"
            owners |= dict.fromkeys(gpus, worker) if held else {}
            granted += held
        stored = {gpu: shared.client.get(keys.gpu(f"GPU-{gpu}")) for gpu in "wxyz"}
        assert {gpu: owner.decode() for gpu, owner in stored.items() if owner} == owners
    assert granted > 50
