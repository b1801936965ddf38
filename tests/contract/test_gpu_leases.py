"""GPUs and the scripts: claims, shares of a device, and bells for mixed fleets."""

from __future__ import annotations

import pytest

from jobs.models import Device
from jobs.store import fleet
from tests.contract.lease_model import Bench


def test_a_gpu_is_one_workers_until_it_gives_it_up_or_dies(bench: Bench) -> None:
    store = bench.store
    assert store.fleet.claim("GPU-1", "a") and store.fleet.claim("GPU-1", "a")
    assert not store.fleet.claim("GPU-1", "b")
    assert store.fleet.claim("GPU-2", "b")
    store.fleet.give_up("GPU-1", "b")
    assert not store.fleet.claim("GPU-1", "b"), "nobody gives up another's"
    store.fleet.give_up("GPU-1", "a")
    assert store.fleet.claim("GPU-1", "b")
    assert 0 < bench.store.client.pttl("ct:gpu:GPU-1") <= fleet.GPU_TTL_MS


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
        "use|gpu|g|units": b"6", "use|gpu|g|ms": b"210", "use|gpu|g|leases": b"3", "use|gpu|g|device_ms": b"120",
        "use|gpu|g|mj": b"1750",
    }  # fmt: skip


@pytest.mark.parametrize(("queue", "bells"), [("gpu.normal", 3), ("cpu.normal", 0), ("any.normal", 4)])
def test_the_first_grant_rings_for_the_idle_workers_of_its_own_device(bench: Bench, queue: str, bells: int) -> None:
    """Busy CPU workers are no reason to leave idle GPUs alone."""
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
