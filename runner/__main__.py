"""Entry point of a runner: `python -m runner`. A runner reaches only coordinators, never Redis."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # Garbage collection during the imports would take a tenth of the start; main() enables it.

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from jobs import logs, settings
from jobs.kinds import registry
from jobs.models import Device
from jobs.network import exposure
from jobs.settings import TUNNEL, Settings, usable_cores, usable_memory_mib
from jobs.store.work.lease_store import Row
from jobs.worker.api import links
from jobs.worker.api.api_attachments import ApiAttachments
from jobs.worker.api.api_calls import TIMEOUT_SECONDS, Api
from jobs.worker.api.api_files import JobFiles
from jobs.worker.api.links import ApiLink, CannotStart
from jobs.worker.lifecycle import Worker, refusal
from jobs.worker.telemetry.profiler import Sampled
from runner import gpus
from runner.files.cache import FileCache
from runner.files.directories import Places
from runner.files.environments import Environments
from runner.files.inputs import Files, Inputs
from runner.files.working_directory import Workplace
from runner.host import Host
from runner.host_errors import Cordon
from runner.lane import GuardLane, ReplicaLane, RunnerLane
from runner.ledger import REPLICA_LANE, Ledger, Resources
from runner.programs import cleanup, processes
from runner.programs.kept import KeptPrograms, Limits
from runner.programs.shells import Shells
from runner.programs.slot import Slot, adopt_orphans, forget_helper, spawn_helper
from runner.replicas.tunnels import Tunnels

log = logging.getLogger("runner")

LOOPBACK = "127.0.0.1"
#: Kinds whose jobs are programs.
KINDS = registry.kinds_for_device(Device.RUNNER)
#: Time in seconds that running programs get to exit when the runner stops, including the runner's last API calls.
SHUTDOWN_SECONDS = 75.0
#: Share of the offered memory that a program can use if its job requests no memory.
_MEMORY_SHARE = 0.9


def resources(settings: Settings) -> Resources:
    """Return the resources that this runner offers."""
    memory = settings.runner_memory_mib or usable_memory_mib()
    return Resources(
        slots=settings.slots(),
        replicas=settings.replicas(),
        cpus=float(usable_cores()),
        memory_mib=memory,
        host=settings.host_name(),
        gpus=tuple(gpus.detect(settings.gpu_enabled, settings.cuda_visible_devices)),
        labels=tuple(settings.labels()),
        isolated=bool(settings.program_uids()),
    )


@contextmanager
def folder(settings: Settings) -> Iterator[Places]:
    """Lock and clean up the runner's folders, and yield their paths. Raises CannotStart.

    Without RUNNER_DIR, the folders are temporary.
    """
    top = Path(settings.runner_dir or tempfile.mkdtemp(prefix="runner-")).absolute()
    places = Places(top)
    try:
        places.make()
        lock = cleanup.lock(places)
    except cleanup.InUse as error:
        raise CannotStart(f"{error}; set a different RUNNER_DIR for each runner") from None
    except OSError as error:
        raise CannotStart(
            f"cannot use RUNNER_DIR {top}: {error}; set it to a folder that this user can write"
        ) from None
    try:
        cleanup.end_guards()
        cleanup.end(places)
        cleanup.remove(places)
        yield places
    finally:
        lock.close()
        if not settings.runner_dir:
            shutil.rmtree(top, ignore_errors=True)


def tunnels(settings: Settings, api: Api) -> Tunnels | None:
    """Return the tunnels through which coordinators reach replicas.

    Returns None if coordinators reach replicas at an address, which is either configured or local to this host.
    """
    is_wanted = settings.service_address == TUNNEL
    if not settings.service_address:
        is_wanted = not exposure.is_loopback(api.place.host)
    return Tunnels(api) if is_wanted else None


def compose(settings: Settings, link: ApiLink, places: Places) -> tuple[Worker, Callable[[], list[RunnerLane]]]:
    """Create the worker, and a function that starts its lanes."""
    api = link.store.api
    ledger = Ledger(resources(settings), link.store.fleet, link.worker, freed=link.repeat_request, foreign=gpus.foreign)

    def files(job: str, lease: str, stopped: Callable[[], bool]) -> Files:
        return JobFiles(api, job, lease, stopped=stopped)

    shells = Shells(ApiAttachments(api.for_heartbeats(TIMEOUT_SECONDS)), allowed=bool(settings.runner_attach))
    host = Host(
        shells=shells,
        worker=link.worker,
        name=settings.host_name(),
        store=link.store,
        files=files,
        places=places,
        inputs=Inputs(FileCache(places.cache, settings.cache_bytes)),
        ledger=ledger,
        telemetry=gpus.Telemetry(ledger.resources.gpus),
        cordon=Cordon(places.work),
        environments=Environments(places.environments, settings.cache_bytes),
        stopping=lambda: bool(worker.server and worker.server.stopping),
        address=LOOPBACK if settings.service_address in ("", TUNNEL) else settings.service_address,
        tunnels=tunnels(settings, api),
        memory_bytes=int(ledger.resources.memory_mib * _MEMORY_SHARE) << 20,
        kept=KeptPrograms(
            Limits(
                idle_seconds=settings.persistent_idle_seconds,
                units=settings.persistent_units,
                growth_bytes=settings.persistent_growth_mib << 20,
            )
        ),
    )

    def report_row() -> Row:
        server = worker.server
        return host.row(server.busy(), draining=server.draining or server.stopping) if server else host.row(0)

    worker = Worker(
        settings,
        Device.RUNNER,
        settings.slots(),
        report_row,
        kinds={kind: registry.definition(kind).model_version for kind in KINDS},
        room=ledger,
        shutdown_seconds=SHUTDOWN_SECONDS,
        asked=host.asked,
        sampled=Sampled(spawn=spawn_helper, gone=forget_helper),
    )
    if not settings.replicas():
        for kind in registry.endless_kinds():
            worker.refuse(kind, "RUNNER_UIDS contains only user IDs for the slots; add one user ID for each replica")

    def start() -> list[RunnerLane]:
        def workplace(name: str, uid: int | None) -> Workplace:
            return Workplace(places, Slot(name), host.inputs, uid)

        names = [f"{REPLICA_LANE}{number}" for number in range(settings.replicas())]
        uids = settings.program_uids() or [None] * (settings.slots() + len(names))
        slots = [GuardLane(host, workplace(str(at), uids[at])) for at in range(settings.slots())]
        replicas = zip(names, uids[len(slots) :], strict=False)
        return [*slots, *(ReplicaLane(host, name, partial(workplace, name, uid)) for name, uid in replicas)]

    return worker, start


def run(settings: Settings) -> int:
    try:
        link = links.connect(settings, Device.RUNNER)
        assert isinstance(link, ApiLink)
        with folder(settings) as places:
            return serve(settings, link, places)
    except CannotStart as error:
        log.error("%s", error)
        return exposure.REFUSED


def serve(settings: Settings, link: ApiLink, places: Places) -> int:
    worker, start = compose(settings, link, places)
    lanes: list[RunnerLane] = []

    def start_lanes() -> list[RunnerLane]:
        lanes.extend(start())
        return lanes

    def close() -> None:
        for lane in lanes:
            lane.close()

    return worker.run(link, start_lanes, close)


def startup_error(settings: Settings) -> str:
    """Return the reason why this process cannot be a runner, or an empty string."""
    if not settings.worker_api:
        return (
            "a runner connects only to coordinators, to hide the password of Redis from programs: set"
            " WORKER_API=https://cluster.example and WORKER_TOKEN from `cluster token create NAME --scopes worker`"
        )
    if not sys.platform.startswith("linux") or not processes.can_list_children():
        return "a runner requires Linux with /proc/PID/task/PID/children: run it in a container or on another host"
    return ""


def main() -> int:
    gc.enable()
    chosen = settings.load_for("runner")
    # Without WORKER_ID, the coordinator reports the worker's name, which is the name of its token.
    named = {"worker": chosen.worker_id} if chosen.worker_id else {}
    logs.configure(chosen.log_level, "runner", host=chosen.host_name(), **named)
    if why := startup_error(chosen):
        log.error("%s", why)
        return exposure.REFUSED
    if os.geteuid() == 0 and not chosen.program_uids():
        log.warning(
            "this runner and its programs run as root, so programs can read its token: set RUNNER_UIDS=61184-%d, or"
            " run it as another user",
            61183 + chosen.slots() + chosen.replicas(),
        )
    adopt_orphans()
    processes.hide()
    return refusal(chosen) or run(chosen)


if __name__ == "__main__":
    sys.exit(main())
