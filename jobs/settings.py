"""The only module that reads the environment. A test compares it with docs/settings.md."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.hosts import cpu_level

#: Where the local cluster of this checkout keeps its data; it leaves its address there.
LOCAL_FOLDER = Path(__file__).resolve().parent.parent / ".cluster"


#: SERVICE_ADDRESS of a runner whose replicas are reached through tunnels that it opens.
TUNNEL = "tunnel"
#: Replicas of services that a runner may run at once, unless it has more slots. Memory and GPUs are the usual limits.
REPLICAS = 32
#: Secrets in files: one a setting, under its name (redis_url, cluster_token). A variable wins over a file.
SECRETS_FOLDER = Path("/run/secrets")

_NAME = r"^[A-Za-z0-9._-]{0,64}$"
#: What makes digests of /etc/machine-id ours: machine-id(5) forbids to show the number itself.
_MACHINE_KEY = b"threads-cluster host"
#: Files that container engines leave in a container.
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
        secrets_dir=SECRETS_FOLDER if SECRETS_FOLDER.is_dir() else None,
    )

    #: Workers wanted: shown in status, alerted on when fewer live. 0: not stated.
    cluster_size: int = Field(default=0, ge=0, le=10_000)
    #: A file with that number, which is read anew whenever it is shown. Empty, or no number in it: CLUSTER_SIZE.
    cluster_size_file: str = ""
    #: Minimum number of CPU workers that autoscaling requests.
    autoscale_min: int = Field(default=1, ge=0, le=10_000)
    #: Maximum number of CPU workers that autoscaling requests.
    autoscale_max: int = Field(default=10, ge=0, le=10_000)
    #: Minimum number of GPU workers that autoscaling requests.
    autoscale_gpu_min: int = Field(default=0, ge=0, le=10_000)
    #: Maximum number of GPU workers that autoscaling requests.
    autoscale_gpu_max: int = Field(default=0, ge=0, le=10_000)
    #: Seconds in which the desired workers do the work that waits and runs.
    autoscale_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    #: Seconds for which fewer workers must do before fewer are desired.
    autoscale_calm_seconds: float = Field(default=300, ge=0, le=86400, allow_inf_nan=False)
    #: auto: a GPU worker uses a GPU when there is one; true: fails without; false: never.
    gpu_enabled: Literal["auto", "true", "false"] = "auto"
    #: The API's port.
    coordinator_port: int = Field(default=3000, ge=1, le=65535)
    #: Where a coordinator answers over gRPC, 50051 by custom. 0: nowhere.
    grpc_port: int = Field(default=0, ge=0, le=65535)
    #: The address the API and metrics listen on. Others than loopback need CLUSTER_TOKEN or AUTH: see exposure.py.
    bind: str = "127.0.0.1"
    #: Where the API is published when BIND does not say it, as in a container: an address, or loopback. Empty: BIND.
    published: str = ""
    #: true: an API that listens beyond loopback, and is not published elsewhere, is announced by mDNS.
    discoverable: Literal["true", "false"] = "true"
    #: Where Prometheus reads a coordinator. 0: nowhere.
    metrics_port: int = Field(default=9090, ge=0, le=65535)
    #: The same as PUBLISHED for the metrics, or internal: on a network of the cluster's own. Empty: PUBLISHED.
    metrics_published: str = ""
    #: When set, reading metrics needs it as a bearer token.
    metrics_token: str = ""
    #: Host names beside loopback's under which a cluster without a token is reached, with commas between.
    allowed_hosts: str = Field(default="", pattern=r"^[A-Za-z0-9.,_ \[\]:-]*$")
    #: A domain whose names, of one label more, are pages of services. Empty: only names below localhost are.
    services_domain: str = Field(default="", max_length=180, pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)*)?$")
    #: What an image runs: coordinator, cpu-worker, gpu-worker or runner.
    node_type: Literal["coordinator", "cpu-worker", "gpu-worker", "runner", ""] = ""
    #: Stable name of a worker, shown everywhere. Default: the machine's name and the process number.
    worker_id: str = Field(default="", pattern=_NAME, validation_alias=AliasChoices("worker_id", "node_id"))
    #: Name of the machine on which a worker runs; all workers of the machine have the same name. Default: the machine's
    #: name with a digest of its machine-id; in a container, the container's name.
    host_id: str = Field(default="", pattern=_NAME)
    #: required: every API call needs a token. auto: unless the API is published on loopback without CLUSTER_TOKEN.
    auth: Literal["auto", "required"] = "auto"
    #: When set, every API call needs a token, and this one has every scope; two, while one replaces the other.
    cluster_token: str = ""
    #: Encrypts tenants' secrets; of several, the first encrypts and all decrypt. Empty: no secret can be stored.
    secrets_key: str = Field(default="", repr=False)
    #: Networks beside public addresses that webhooks may reach, with commas between.
    webhook_allow: str = ""
    #: Addresses and networks whose X-Forwarded-For is believed, with commas between; empty: nobody's.
    trusted_proxies: str = ""
    #: Instructions that kernels of a CPU worker use at most. Empty: those of its CPU.
    cpu_level: Literal["", "v2", "avx2", "avx512"] = ""
    #: Lanes of a CPU worker. 0: the cores it may use.
    worker_threads: int = Field(default=0, ge=0, le=1024)
    #: Most units a GPU launch takes. 0: the device decides.
    gpu_batch_size: int = Field(default=0, ge=0)
    #: Most memory of its GPU that a worker takes, in MiB. 0: what is free.
    gpu_memory_limit: int = Field(default=0, ge=0)
    #: GPUs that a worker may claim, by number or UUID, with commas between; empty: all of its host.
    cuda_visible_devices: str = ""
    #: redis://, rediss://, unix:// or redis+sentinel://host:port,host:port/service/db: jobs/network/redis_address.py
    redis_url: str = "redis://127.0.0.1:6379/0"
    #: https://HOST of a coordinator or the proxy before it: a worker takes its work there, and not at REDIS_URL.
    worker_api: str = ""
    #: The token with which it does; its name is the worker's.
    worker_token: str = Field(default="", repr=False)
    #: A file with the certificate of the one authority that may sign that of WORKER_API. Empty: those of the system.
    worker_api_ca: str = ""
    #: File with the certificate of the API. Empty: the API is served over HTTP, not over HTTPS.
    tls_certificate: str = ""
    #: File with the private key of TLS_CERTIFICATE.
    tls_key: str = ""
    #: Programs that a runner runs at once. 0: the cores it may use.
    runner_slots: int = Field(default=0, ge=0, le=1024)
    #: A folder for a runner's work, cache, workspaces and environments. Empty: a new one, removed at its end.
    runner_dir: str = ""
    #: Bytes of files of jobs that a runner keeps for later ones.
    cache_bytes: int = Field(default=10 << 30, ge=0)
    #: What a runner has that jobs may require, with commas between.
    runner_labels: str = Field(default="", pattern=r"^[A-Za-z0-9._:/, -]*$")
    #: Labels of the hosts of workers at REDIS_URL, which tenants may require, with commas between; of coordinators: of
    #: those that the number of desired workers starts.
    worker_labels: str = Field(default="", pattern=r"^[A-Za-z0-9._:/, -]*$")
    #: first-last: users as which a runner that is root runs programs: one for each slot, and one for each replica of a
    #: service. Empty: all as itself.
    runner_uids: str = Field(default="", pattern=r"^([1-9][0-9]{0,8}-[1-9][0-9]{0,8})?$")
    #: 1: people may have shells beside the programs that a runner runs. 0: nobody may.
    runner_attach: int = Field(default=1, ge=0, le=1)
    #: Address at which replicas of services on a runner listen, and at which coordinators reach them. TUNNEL: through
    #: tunnels that the runner opens; empty: so, or on loopback where WORKER_API is on this host.
    service_address: str = Field(default="", max_length=64)
    #: Memory that a runner offers to programs, in MiB. 0: the machine's or the container's.
    runner_memory_mib: int = Field(default=0, ge=0)
    #: Replicas of Redis that must have a change before it is acknowledged. 0: the master alone.
    redis_replicas_to_wait: int = Field(default=0, ge=0, le=100)
    #: Seconds that finished jobs and their results are kept.
    result_ttl: int = Field(default=7 * 86400, ge=60, le=366 * 86400)
    #: Jobs that may be queued at once; more are refused with 429. 0: any number.
    max_queued: int = Field(default=0, ge=0)
    #: Seconds of waiting after which a job gets one turn in eight beside higher priorities.
    age_seconds: float = Field(default=300, ge=1, le=366 * 86400, allow_inf_nan=False)
    #: Seconds for which a program waits for room on a runner before one is kept for it. 0: none is ever kept.
    reserve_seconds: float = Field(default=60, ge=0, le=366 * 86400, allow_inf_nan=False)
    #: true: submits are acknowledged only when Redis has them on its disk: Redis 7.2 or later with its log on.
    submit_durable: Literal["true", "false"] = "false"
    #: A folder whose files the coordinator serves at /. Empty: another server has the pages.
    pages_dir: str = ""
    #: A file to which the leading coordinator exports the audit log. Empty: Redis alone keeps its last entries.
    audit_file: str = ""
    #: Where coordinators keep the bytes of artifacts: a folder that all of them share, s3:// or another of fsspec's.
    #: Empty: there are no artifacts.
    artifact_url: str = ""
    #: Where spans of jobs are sent by OTLP over HTTP, as http://collector:4318; empty: nowhere.
    otel_exporter_otlp_endpoint: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    #: Share of the submissions without a traceparent of their own that begin a trace.
    otel_traces_sampler_arg: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    #: A folder in which workers keep what they record for profiles until the cluster has it. Empty: a temporary one.
    profile_dir: str = ""
    #: Logs are JSON lines on stderr. debug, info, warning or error.
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    #: A file that a worker touches whenever Redis has taken its heartbeat; empty: none.
    heartbeat_file: str = ""

    # Thresholds of alerts: the coordinators', and those of prometheus/rules/thresholds.yml.
    #: Seconds that the oldest job of a queue may wait; low may wait for ever.
    alert_queue_wait_seconds: float = Field(default=600, gt=0, allow_inf_nan=False)
    #: The same of a question's queue.
    alert_interactive_wait_seconds: float = Field(default=10, gt=0, allow_inf_nan=False)
    #: Seconds for which a lost worker is news.
    alert_worker_lost_seconds: float = Field(default=600, gt=0, allow_inf_nan=False)
    #: Seconds that a live worker may be silent.
    alert_heartbeat_seconds: float = Field(default=3, gt=0, allow_inf_nan=False)
    #: Share of a kind's jobs that may fail in half an hour.
    alert_job_failures_ratio: float = Field(default=0.1, gt=0, le=1, allow_inf_nan=False)
    #: Share of leases that may die with their lane or worker in a quarter of an hour.
    alert_leases_lost_ratio: float = Field(default=0.05, gt=0, le=1, allow_inf_nan=False)
    #: Seconds for which a workflow that goes on may have no job that waits or runs, or nobody may look at workflows.
    alert_workflow_seconds: float = Field(default=600, gt=0, allow_inf_nan=False)
    #: Share of its memory that Redis may use.
    alert_redis_memory_ratio: float = Field(default=0.85, gt=0, le=1, allow_inf_nan=False)
    #: Share of its memory that a host may use.
    alert_host_memory_ratio: float = Field(default=0.92, gt=0, le=1, allow_inf_nan=False)
    #: Share of the API's answers that may be 5xx.
    alert_api_errors_ratio: float = Field(default=0.05, gt=0, le=1, allow_inf_nan=False)
    #: Seconds within which 19 of 20 answers of the API come.
    alert_api_seconds: float = Field(default=1, gt=0, allow_inf_nan=False)
    #: Temperature that a GPU may have, in degrees Celsius.
    alert_gpu_celsius: float = Field(default=85, gt=0, allow_inf_nan=False)
    #: Share of its memory that a GPU may use.
    alert_gpu_memory_ratio: float = Field(default=0.95, gt=0, le=1, allow_inf_nan=False)
    #: Share of ten minutes in which heat or power may slow a GPU down.
    alert_gpu_throttled_ratio: float = Field(default=0.2, gt=0, le=1, allow_inf_nan=False)

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> Settings:
        for prefix in ("autoscale_", "autoscale_gpu_"):
            if getattr(self, f"{prefix}min") > getattr(self, f"{prefix}max"):
                raise ValueError(f"{prefix.upper()}MIN is above {prefix.upper()}MAX")
        return self

    @model_validator(mode="after")
    def _a_certificate_has_its_key(self) -> Settings:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("TLS_CERTIFICATE and TLS_KEY are set together, or neither is")
        return self

    @model_validator(mode="after")
    def _services_listen_at_an_address(self) -> Settings:
        if self.service_address in ("", TUNNEL):
            return self
        try:
            is_any = ip_address(self.service_address).is_unspecified
        except ValueError:
            raise ValueError(f"SERVICE_ADDRESS is an address of IP, as 10.0.0.7; got {self.service_address}") from None
        if is_any:
            raise ValueError("SERVICE_ADDRESS is one address of this host, at which coordinators reach it")
        return self

    @model_validator(mode="after")
    def _every_slot_has_a_user(self) -> Settings:
        uids = self.program_uids()
        if self.runner_uids and len(uids) < self.slots():
            raise ValueError(f"RUNNER_UIDS names {len(uids)} users for {self.slots()} slots: one a slot is needed")
        return self

    def cluster_tokens(self) -> list[str]:
        """Tokens of CLUSTER_TOKEN: several while one replaces another, with white space or commas between."""
        return _words(self.cluster_token)

    def secrets_keys(self) -> list[str]:
        """Keys of SECRETS_KEY, the one that encrypts first, with white space or commas between."""
        return _words(self.secrets_key)

    def worker_name(self) -> str:
        return self.worker_id or f"{socket.gethostname()}-{os.getpid()}"

    def wanted_workers(self) -> int:
        """Workers wanted at this moment; 0: not stated."""
        try:
            text = Path(self.cluster_size_file).read_text() if self.cluster_size_file else ""
        except OSError:
            text = ""
        return int(text) if re.fullmatch(r"[0-9]{1,5}\s*", text, re.ASCII) else self.cluster_size

    def host_name(self) -> str:
        """Name of this machine among the cluster's hosts."""
        return self.host_id or default_host()

    def lanes(self) -> int:
        """Lanes of a CPU worker: as stated, else the cores it may use."""
        return self.worker_threads or usable_cores()

    def slots(self) -> int:
        """Programs that a runner runs at once: as stated, else the cores it may use."""
        return self.runner_slots or usable_cores()

    def replicas(self) -> int:
        """Return how many replicas of services a runner may run at once, in addition to its slots.

        With RUNNER_UIDS each replica has its own user. These are the users after those of the slots.
        """
        most = max(REPLICAS, self.slots())
        return min(most, len(self.program_uids()) - self.slots()) if self.runner_uids else most

    def labels(self) -> list[str]:
        """Labels of a runner, sorted."""
        return sorted(set(_words(self.runner_labels)))

    def host_labels(self) -> list[str]:
        """Labels of the host of a worker at Redis, sorted."""
        return sorted(set(_words(self.worker_labels)))

    def data_places(self) -> dict[str, Path]:
        """Folders that a worker of this machine fills, by what they are for."""
        runner = {"runner": Path(self.runner_dir)} if self.runner_dir else {}
        return {"data": LOCAL_FOLDER, "temporary": Path(tempfile.gettempdir()), **runner}

    def profile_folder(self) -> Path:
        """Folder of what a worker records for profiles: workers of one user on one machine share it."""
        return Path(self.profile_dir or f"{tempfile.gettempdir()}/threads-cluster-profiles-{os.geteuid()}").absolute()

    def program_uids(self) -> range:
        """Users of a runner's programs, those of the slots first; empty: all programs run as the runner's user."""
        if not self.runner_uids:
            return range(0)
        first, last = map(int, self.runner_uids.split("-"))
        return range(first, last + 1)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may be scheduled on, and no more than its container's CPU limit, rounded up."""
    # macOS cannot tell which cores a process may use.
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, _cpu_limit(cgroup) or own)


def _cpu_limit(cgroup: Path) -> int | None:
    """Return the limit of control groups version 2, then 1, in cores; None without one."""
    for places in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((cgroup / place).read_text().strip() for place in places).split()
            return max(1, -(-int(quota) // int(period))) if int(quota) > 0 else None
        except (OSError, ValueError):
            continue
    return None


def usable_memory_mib(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory of this machine in MiB, and no more than its container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in ("memory.max", "memory/memory.limit_in_bytes"):  # control groups version 2, then 1
        try:
            return min(total, int((cgroup / place).read_text())) >> 20
        except (OSError, ValueError):
            continue
    return total >> 20


def default_host(machine_id: Path = Path("/etc/machine-id"), marks: Iterable[Path] = _CONTAINER_MARKS) -> str:
    """The machine's name with a digest of its machine-id, so that two machines of one name are two hosts.

    The name alone where there is no machine-id, and in a container: what an image brings is the same on every machine.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    try:
        number = b"" if any(mark.exists() for mark in marks) or _in_a_pod() else machine_id.read_bytes().strip()
    except OSError:
        number = b""
    digest = hmac.new(_MACHINE_KEY, number, hashlib.sha256).hexdigest()[:8]
    return f"{name[:55]}-{digest}" if number else name[:64]


def _in_a_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def search_path() -> str:
    """Return where this process looks for commands."""
    return os.environ.get("PATH", os.defpath)


def inherited(**more: str) -> dict[str, str]:
    """Return the environment of this process with these variables besides, for a child that all of it concerns."""
    return {**os.environ, **more}


def use_cpu_level(wanted: str) -> str:
    """Have numba compile for this level, "" being that of the CPU, in this process and its children. Before anything
    imports it. Return the level in use. cpu_level.Unusable when the CPU has less.
    """
    cpu_level.check(wanted)
    host = cpu_level.of_host()
    if wanted and wanted != host:
        os.environ["NUMBA_CPU_NAME"] = cpu_level.processor(wanted)
        os.environ["NUMBA_CPU_FEATURES"] = cpu_level.features(wanted)
    return wanted or host


def show_one_gpu(uuid: str) -> None:
    """Hides the others from CUDA. Before anything imports it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid


def begin_anew(visible: str) -> NoReturn:
    """Replace this process by one of the same command, whose CUDA_VISIBLE_DEVICES this is. Nothing of CUDA is left."""
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one of the list itself
            if str(opened.readlink()).startswith("/dev/nvidia"):
                os.set_inheritable(int(opened.name), False)
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)


#: Settings that came by another way than the environment, where a child or another process could read them.
given_settings: dict[str, Any] = {}


def give(**settings: Any) -> None:
    """Have `load` return settings with these values from now on, whatever the environment says."""
    given_settings.update(settings)
    load.cache_clear()


def give_worker_token(token: str) -> None:
    """Have `load` return settings with this WORKER_TOKEN from now on."""
    give(worker_token=token)


@lru_cache
def load() -> Settings:
    return Settings(**given_settings)
