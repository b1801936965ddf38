"""Settings from environment variables, which only this module reads.

The comments above the fields generate docs/settings.md.
"""

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

from pydantic import AliasChoices, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs import invalid_settings
from jobs.hosts import cpu_level
from jobs.invalid_settings import InvalidSettings

#: Folder with the code: a checkout, or a release of an installation.
CHECKOUT = Path(__file__).resolve().parent.parent
#: Folder with the state of the cluster. An installation sets CLUSTER_HOME, so that all its releases share the state.
STATE_FOLDER = Path(os.environ.get("CLUSTER_HOME") or CHECKOUT).resolve()
#: Folder of the local cluster.
LOCAL_FOLDER = STATE_FOLDER / ".cluster"


#: Value of SERVICE_ADDRESS that makes coordinators reach a runner's replicas through tunnels.
TUNNEL = "tunnel"
#: Maximum number of service replicas per runner, unless it has more slots. Usually memory or GPUs are the limit.
REPLICAS = 32
#: Folder of secret files, each named after a setting, such as redis_url. Environment variables take precedence.
SECRETS_FOLDER = Path("/run/secrets")

#: Exit code of a process whose settings are invalid.
INVALID = 2

_NAME = r"^[A-Za-z0-9._-]{0,64}$"
#: Key for hashing /etc/machine-id, because machine-id(5) forbids publishing the ID itself.
_MACHINE_KEY = b"threads-cluster host"
#: Files that exist only in containers. Container engines create them.
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
        secrets_dir=SECRETS_FOLDER if SECRETS_FOLDER.is_dir() else None,
    )

    #: Expected number of workers, as the status reports it. An alert fires if there are fewer. With 0, no alert fires.
    cluster_size: int = Field(default=0, ge=0, le=10_000)
    #: File with the expected number of workers, which can change at run time. Without a number, `CLUSTER_SIZE` applies.
    cluster_size_file: str = ""
    #: Minimum number of CPU workers (docs/operations.md#workers-by-need).
    autoscale_min: int = Field(default=1, ge=0, le=10_000)
    #: Maximum number of CPU workers.
    autoscale_max: int = Field(default=10, ge=0, le=10_000)
    #: Minimum number of GPU workers.
    autoscale_gpu_min: int = Field(default=0, ge=0, le=10_000)
    #: Maximum number of GPU workers, one per GPU.
    autoscale_gpu_max: int = Field(default=0, ge=0, le=10_000)
    #: Seconds within which the workers should complete all queued and running work.
    autoscale_seconds: float = Field(default=60, ge=1, le=86400, allow_inf_nan=False)
    #: Seconds of low demand after which the number of workers is reduced.
    autoscale_calm_seconds: float = Field(default=300, ge=0, le=86400, allow_inf_nan=False)
    #: Use of the host's GPUs: `auto` uses them if there are any, `true` fails without a GPU, and `false` uses none.
    gpu_enabled: Literal["auto", "true", "false"] = "auto"
    #: Port of the API.
    coordinator_port: int = Field(default=3000, ge=1, le=65535)
    #: gRPC port of a coordinator, such as 50051. With 0, the coordinator does not serve gRPC (docs/grpc.md).
    grpc_port: int = Field(default=0, ge=0, le=65535)
    #: Address on which the API and the metrics listen. Any address except loopback requires a token for each of them.
    #: For the API, set `CLUSTER_TOKEN` or `AUTH=required`.
    #: For the metrics, set `METRICS_TOKEN`, `METRICS_PUBLISHED` or `METRICS_PORT=0`.
    #: See docs/decisions/0012-refuse-to-listen-on-a-network-without-a-token.md.
    bind: str = "127.0.0.1"
    #: Address at which a container's API is published, or `loopback`. If the setting is empty, `BIND` applies.
    published: str = ""
    #: If `true` and `BIND` is not loopback, the coordinator announces the API by mDNS for `cluster discover`.
    #: The announcement requires the package `zeroconf` (docs/hosts.md#find-a-cluster).
    discoverable: Literal["true", "false"] = "true"
    #: Port of the metrics of a coordinator or worker. With 0, the process serves no metrics.
    metrics_port: int = Field(default=9090, ge=0, le=65535)
    #: Address at which a container's metrics are published, or `internal` if only a private network reaches them.
    #: If the setting is empty, `PUBLISHED` applies.
    metrics_published: str = ""
    #: Bearer token that is required to read the metrics. If the setting is empty, no token is required.
    metrics_token: str = ""
    #: Host names, separated by commas, that requests can use in addition to loopback names.
    #: The setting applies to clusters without a token, and to metrics on loopback.
    allowed_hosts: str = Field(default="", pattern=r"^[A-Za-z0-9.,_ \[\]:-]*$")
    #: Domain whose subdomains serve the web pages of services, such as Dask's dashboard.
    #: If the setting is empty, only subdomains of `localhost` serve these pages (docs/services.md#pages-of-services).
    services_domain: str = Field(default="", max_length=180, pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)*)?$")
    #: Role of a process: coordinator, cpu-worker, gpu-worker or runner. A process with another role does not start.
    #: `worker` means gpu-worker if `GPU_ENABLED` is `true`, and otherwise cpu-worker.
    node_type: Literal["coordinator", "worker", "cpu-worker", "gpu-worker", "runner", ""] = ""
    #: Stable name of a worker. If the setting is empty, the name consists of the host name and the process ID.
    worker_id: str = Field(default="", pattern=_NAME, validation_alias=AliasChoices("worker_id", "node_id"))
    #: Name of the host, which is the same for all workers on the host.
    #: If the setting is empty, the name is the host name with a digest of the machine ID, or the container's name.
    #: See docs/decisions/0013-name-a-host-by-host-id-or-by-its-machine-id.md.
    host_id: str = Field(default="", pattern=_NAME)
    #: With `required`, every API call needs a token.
    #: With `auto`, calls need no token if the API is published on loopback and `CLUSTER_TOKEN` is not set.
    #: With `guest`, such calls can only submit compiled kinds and use the jobs that were submitted without a token.
    #: A local cluster with a runner uses `guest` instead of `auto`. See docs/access.md.
    auth: Literal["auto", "guest", "required"] = "auto"
    #: Token that permits everything. If the setting is not empty, every API call needs a token.
    #: To replace the token, list the old and the new one, separated by a comma.
    cluster_token: str = ""
    #: Key that encrypts secrets and signs webhooks. All coordinators need the same key.
    #: To replace the key, list several keys, separated by commas.
    #: If the setting is empty, secrets cannot be stored (docs/secrets.md).
    secrets_key: str = Field(default="", repr=False)
    #: Private networks, separated by commas, to which webhooks can be sent in addition to public addresses.
    #: See docs/webhooks.md#allowed-destinations.
    webhook_allow: str = ""
    #: Addresses and networks, separated by commas, of proxies whose `X-Forwarded-For` header is trusted.
    #: If the setting is empty, no proxy is trusted (docs/access.md#behind-a-proxy).
    trusted_proxies: str = ""
    #: Highest CPU instruction level that a CPU worker's kernels use: `v2`, `avx2` or `avx512`.
    #: If the setting is empty, the worker detects the level.
    #: Only x86-64 was tested (docs/benchmarks.md#levels-of-cpus).
    cpu_level: Literal["", "v2", "avx2", "avx512"] = ""
    #: Number of lanes of a CPU worker. With 0, the worker has one lane per available core.
    worker_threads: int = Field(default=0, ge=0, le=1024)
    #: Maximum number of units per launch of a GPU worker. With 0, the device determines the number.
    gpu_batch_size: int = Field(default=0, ge=0)
    #: Maximum GPU memory of a GPU worker in MiB. With 0, the worker can use all free memory.
    gpu_memory_limit: int = Field(default=0, ge=0)
    #: GPUs that a GPU worker can claim, by number or UUID, separated by commas.
    #: If the setting is empty, the worker can claim any GPU.
    cuda_visible_devices: str = ""
    #: Address of Redis: redis://, rediss://, unix:// or redis+sentinel://host:port,host:port/service/db.
    #: See docs/high-availability.md.
    redis_url: str = "redis://127.0.0.1:6379/0"
    #: Address `https://HOST` of a coordinator, or of the proxy in front of it.
    #: If the setting is not empty, the worker gets its work there instead of from `REDIS_URL` (docs/remote-workers.md).
    worker_api: str = ""
    #: For workers, the same as `WORKER_API`. For clients, the address of the API (docs/commands.md#choose-a-cluster).
    coordinator_url: str = ""
    #: The worker's token for `WORKER_API`. Create it with `cluster token create NAME --scopes worker`.
    #: The worker gets the name of the token.
    worker_token: str = Field(default="", repr=False)
    #: File with the certificate authority that signed the certificate of `WORKER_API`.
    #: If the setting is empty, the worker trusts the system's authorities.
    worker_api_ca: str = ""
    #: Certificate file with which a coordinator serves HTTPS. The coordinator reloads the file after a renewal.
    #: If the setting is empty, the coordinator serves HTTP, for example behind nginx.
    tls_certificate: str = ""
    #: Key file of `TLS_CERTIFICATE`.
    tls_key: str = ""
    #: Maximum number of programs that a runner runs at the same time. With 0, the runner runs one per available core.
    runner_slots: int = Field(default=0, ge=0, le=1024)
    #: Folder for a runner's work, cache, workspaces and environments.
    #: If the setting is empty, the runner creates a folder and removes it at the end.
    runner_dir: str = ""
    #: Maximum size in bytes of the job files that a runner caches, which a single job can exceed.
    #: The same limit applies separately to cached Python environments.
    cache_bytes: int = Field(default=10 << 30, ge=0)
    #: Labels of a runner, separated by commas, that jobs can require.
    runner_labels: str = Field(default="", pattern=r"^[A-Za-z0-9._:/, -]*$")
    #: On coordinators, this setting labels the workers that autoscaling starts.
    worker_labels: str = Field(default="", pattern=r"^[A-Za-z0-9._:/, -]*$")
    #: Range `first-last` of user IDs under which a runner with root rights runs programs.
    #: The range needs one ID per slot and per replica of a service (docs/services.md#capacity-on-runners).
    #: If the setting is empty, programs run as the runner's own user.
    runner_uids: str = Field(default="", pattern=r"^([1-9][0-9]{0,8}-[1-9][0-9]{0,8})?$")
    #: With 0, users cannot open shells in the programs of this runner (docs/attach.md).
    runner_attach: int = Field(default=1, ge=0, le=1)
    #: Address at which coordinators reach service replicas on this host (docs/services.md#where-replicas-are-reached).
    #: If the setting is empty, coordinators use the runner's tunnels, or loopback if `WORKER_API` is on this host.
    service_address: str = Field(default="", max_length=64)
    #: Memory for programs in MiB. With 0, programs can use all memory of the machine or container.
    runner_memory_mib: int = Field(default=0, ge=0)
    #: Seconds after which a runner ends a persistent program that has no units (docs/programs.md#many-short-units).
    #: With 0, the program ends with its lease.
    persistent_idle_seconds: float = Field(default=60, ge=0, le=86400, allow_inf_nan=False)
    #: Number of units after which a runner replaces a persistent program.
    persistent_units: int = Field(default=10_000, ge=1)
    #: Growth of a persistent program in MiB after which a runner replaces it, such as a slow leak. With 0, never.
    persistent_growth_mib: int = Field(default=512, ge=0)
    #: Number of Redis replicas that must have a change before it is acknowledged (docs/high-availability.md).
    #: With 0, only the master must have the change.
    redis_replicas_to_wait: int = Field(default=0, ge=0, le=100)
    #: Seconds for which finished jobs and their results are kept.
    result_ttl: int = Field(default=7 * 86400, ge=60, le=366 * 86400)
    #: Maximum number of queued jobs. Further submissions are rejected with status 429. With 0, the number is unlimited.
    max_queued: int = Field(default=0, ge=0)
    #: Seconds of waiting after which a job gets one slot in eight, despite higher priorities and other tenants.
    age_seconds: float = Field(default=300, ge=1, le=366 * 86400, allow_inf_nan=False)
    #: Seconds that a program waits for capacity before a runner is reserved for it (docs/programs.md#large-programs).
    #: With 0, no runner is reserved.
    reserve_seconds: float = Field(default=60, ge=0, le=366 * 86400, allow_inf_nan=False)
    #: If `true`, a submission is acknowledged only after Redis has written it to disk (docs/durability.md).
    #: The value `true` requires Redis 7.2 or later.
    submit_durable: Literal["true", "false"] = "false"
    #: Folder that the coordinator serves at `/`, such as `web/dist`.
    #: If the setting is empty, another server serves the pages.
    pages_dir: str = ""
    #: Folder with the installer and the wheel that the coordinator serves to new machines at `/join` (docs/hosts.md).
    #: A local cluster creates the folder after the first `invite`. If the setting is empty, `/join` does not exist.
    join_dir: str = ""
    #: File to which the leading coordinator appends the audit log (docs/audit.md).
    #: If the setting is empty, Redis keeps the last 100,000 entries.
    audit_file: str = ""
    #: Storage of artifacts: a folder that all coordinators share, `s3://` or another fsspec store (docs/artifacts.md).
    #: A local cluster uses `.cluster/artifacts`, and Docker Compose uses `file:///data/artifacts`.
    #: If the setting is empty, the cluster stores no artifacts.
    artifact_url: str = ""
    #: Address to which coordinators send spans by OTLP over HTTP, such as `http://collector:4318` (docs/tracing.md).
    #: If the setting is empty, tracing is disabled.
    otel_exporter_otlp_endpoint: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    #: Share of submissions without a `traceparent` that start a trace.
    otel_traces_sampler_arg: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    #: Folder in which workers keep profiles until they are uploaded (docs/profiles.md).
    #: If the setting is empty, a local cluster uses .cluster/profiles, and other clusters use a temporary folder.
    profile_dir: str = ""
    #: Minimum level of log messages: debug, info, warning or error. Logs are JSON lines on stderr.
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    #: File that a worker touches at each heartbeat, for health checks.
    heartbeat_file: str = ""

    # Alert thresholds, used by coordinators and by prometheus/rules/thresholds.yml.
    #: Alert threshold: seconds that the oldest job of a queue can wait. Queues of low priority do not cause this alert.
    alert_queue_wait_seconds: float = Field(default=600, gt=0, allow_inf_nan=False)
    #: Alert threshold: seconds that the oldest job of the interactive queue can wait.
    alert_interactive_wait_seconds: float = Field(default=10, gt=0, allow_inf_nan=False)
    #: Duration in seconds of the alert for a lost worker.
    alert_worker_lost_seconds: float = Field(default=600, gt=0, allow_inf_nan=False)
    #: Alert threshold: maximum seconds between two heartbeats of a live worker.
    alert_heartbeat_seconds: float = Field(default=3, gt=0, allow_inf_nan=False)
    #: Alert threshold: share of a kind's jobs that can fail within half an hour.
    alert_job_failures_ratio: float = Field(default=0.1, gt=0, le=1, allow_inf_nan=False)
    #: Alert threshold: share of leases that can be lost with their lane or worker within a quarter of an hour.
    alert_leases_lost_ratio: float = Field(default=0.05, gt=0, le=1, allow_inf_nan=False)
    #: Alert threshold: seconds for which an active workflow can have no waiting or running job.
    #: The same threshold applies to the time for which no workflow is processed.
    alert_workflow_seconds: float = Field(default=600, gt=0, allow_inf_nan=False)
    #: Alert threshold: share of its memory limit that Redis can use.
    alert_redis_memory_ratio: float = Field(default=0.85, gt=0, le=1, allow_inf_nan=False)
    #: Alert threshold: share of its memory that a host can use.
    alert_host_memory_ratio: float = Field(default=0.92, gt=0, le=1, allow_inf_nan=False)
    #: Alert threshold: share of API responses that can have a 5xx status.
    alert_api_errors_ratio: float = Field(default=0.05, gt=0, le=1, allow_inf_nan=False)
    #: Alert threshold: seconds within which 95 % of API responses must be sent.
    alert_api_seconds: float = Field(default=1, gt=0, allow_inf_nan=False)
    #: Alert threshold: maximum temperature of a GPU in degrees Celsius.
    alert_gpu_celsius: float = Field(default=85, gt=0, allow_inf_nan=False)
    #: Alert threshold: share of its memory that a GPU can use.
    alert_gpu_memory_ratio: float = Field(default=0.95, gt=0, le=1, allow_inf_nan=False)
    #: Alert threshold: share of ten minutes for which heat or power limits can slow down a GPU.
    alert_gpu_throttled_ratio: float = Field(default=0.2, gt=0, le=1, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_names_of_specifications(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Replace the node type `worker` by the kind of worker, and use COORDINATOR_URL as the address of workers."""
        given = dict(given)
        if given.get("node_type") == "worker":
            given["node_type"] = "gpu-worker" if given.get("gpu_enabled") == "true" else "cpu-worker"
        if stated := given.get("coordinator_url"):
            worker_api = given["worker_api"] = given.get("worker_api") or stated
            if worker_api.rstrip("/") != stated.rstrip("/"):
                raise ValueError(f"WORKER_API is {worker_api}, but COORDINATOR_URL is {stated}: set only one of them")
        return given

    @model_validator(mode="after")
    def _check_autoscale_limits(self) -> Settings:
        for prefix in ("autoscale_", "autoscale_gpu_"):
            least, most = getattr(self, f"{prefix}min"), getattr(self, f"{prefix}max")
            if least > most:
                raise ValueError(
                    f"{prefix.upper()}MIN is {least}, but must be at most {prefix.upper()}MAX, which is {most}"
                )
        return self

    @model_validator(mode="after")
    def _check_tls_files(self) -> Settings:
        if bool(self.tls_certificate) != bool(self.tls_key):
            named, missing = ("TLS_CERTIFICATE", "TLS_KEY") if self.tls_certificate else ("TLS_KEY", "TLS_CERTIFICATE")
            raise ValueError(f"{named} is set, but {missing} is not: TLS_CERTIFICATE and TLS_KEY must be set together")
        return self

    @model_validator(mode="after")
    def _check_service_address(self) -> Settings:
        if self.service_address in ("", TUNNEL):
            return self
        try:
            is_any = ip_address(self.service_address).is_unspecified
        except ValueError:
            raise ValueError(
                f"SERVICE_ADDRESS must be an IP address, such as 10.0.0.7; got {self.service_address}"
            ) from None
        if is_any:
            raise ValueError("SERVICE_ADDRESS must be a single address at which coordinators reach this host")
        return self

    @model_validator(mode="after")
    def _check_runner_uids(self) -> Settings:
        uids = self.program_uids()
        if self.runner_uids and len(uids) < self.slots():
            raise ValueError(f"RUNNER_UIDS has {len(uids)} user IDs for {self.slots()} slots; each slot needs one")
        return self

    def cluster_tokens(self) -> list[str]:
        """Return the tokens in CLUSTER_TOKEN. There are several tokens while an operator replaces the token."""
        return _split_list(self.cluster_token)

    def secrets_keys(self) -> list[str]:
        """Return the keys in SECRETS_KEY. The first key encrypts new secrets."""
        return _split_list(self.secrets_key)

    def worker_name(self) -> str:
        return self.worker_id or f"{socket.gethostname()}-{os.getpid()}"

    def expected_workers(self) -> int:
        """Return the number of workers that the cluster should have, or 0 if it is not set."""
        try:
            text = Path(self.cluster_size_file).read_text() if self.cluster_size_file else ""
        except OSError:
            text = ""
        return int(text) if re.fullmatch(r"[0-9]{1,5}\s*", text, re.ASCII) else self.cluster_size

    def host_name(self) -> str:
        """Return the name of this host in the cluster, as set by HOST_ID or derived from the host name."""
        return self.host_id or default_host()

    def lanes(self) -> int:
        """Return the number of lanes of a CPU worker: WORKER_THREADS, or the number of usable cores."""
        return self.worker_threads or usable_cores()

    def slots(self) -> int:
        """Return the number of programs that a runner runs at once. The default is the number of usable CPU cores."""
        return self.runner_slots or usable_cores()

    def replicas(self) -> int:
        """Return the maximum number of service replicas of a runner, in addition to its slots.

        With RUNNER_UIDS, each replica runs under its own user ID. These IDs follow the IDs of the slots.
        """
        most = max(REPLICAS, self.slots())
        return min(most, len(self.program_uids()) - self.slots()) if self.runner_uids else most

    def labels(self) -> list[str]:
        """Return the labels of a runner in sorted order."""
        return sorted(set(_split_list(self.runner_labels)))

    def host_labels(self) -> list[str]:
        """Return the host labels of a worker that connects to Redis, in sorted order."""
        return sorted(set(_split_list(self.worker_labels)))

    def data_folders(self) -> dict[str, Path]:
        """Return the folders to which workers on this machine write data, keyed by purpose."""
        runner = {"runner": Path(self.runner_dir)} if self.runner_dir else {}
        return {"data": LOCAL_FOLDER, "temporary": Path(tempfile.gettempdir()), **runner}

    def profile_folder(self) -> Path:
        """Return the folder in which workers record profiles. All workers of a user on a machine share it."""
        return Path(self.profile_dir or f"{tempfile.gettempdir()}/threads-cluster-profiles-{os.geteuid()}").absolute()

    def program_uids(self) -> range:
        """Return the Unix user IDs for a runner's programs, or an empty range if programs run as the runner's user.

        The IDs for slots come first.
        """
        if not self.runner_uids:
            return range(0)
        first, last = map(int, self.runner_uids.split("-"))
        return range(first, last + 1)


def _split_list(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of CPU cores that this process can use, including a container's CPU limit, rounded up."""
    # macOS does not support CPU affinity.
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, _cpu_limit(cgroup) or own)


def _cpu_limit(cgroup: Path) -> int | None:
    """Return the CPU limit of this process's control group in cores, or None if there is no limit."""
    for places in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((cgroup / place).read_text().strip() for place in places).split()
            return max(1, -(-int(quota) // int(period))) if int(quota) > 0 else None
        except (OSError, ValueError):
            continue
    return None


def usable_memory_mib(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory limit of this container in MiB, or the memory of this machine if it is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in ("memory.max", "memory/memory.limit_in_bytes"):  # Control groups version 2, then version 1
        try:
            return min(total, int((cgroup / place).read_text())) >> 20
        except (OSError, ValueError):
            continue
    return total >> 20


def default_host(machine_id: Path = Path("/etc/machine-id"), marks: Iterable[Path] = _CONTAINER_MARKS) -> str:
    """Return this machine's host name with a digest of its machine ID, so that equal host names do not collide.

    Without a machine ID, and in a container, return only the host name: all containers of an image have the same
    machine ID.
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
    """Return the PATH in which this process looks for commands."""
    return os.environ.get("PATH", os.defpath)


def installer_settings() -> dict[str, str]:
    """Return the environment variables of this process that let pip install from an unpacked bundle."""
    return {name: os.environ[name] for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS") if name in os.environ}


def notify_socket() -> str:
    """Return the address to which a process that systemd has started reports that it is ready, or ""."""
    return os.environ.get("NOTIFY_SOCKET", "")


def child_environment(**more: str) -> dict[str, str]:
    """Return the environment for a child process: the environment of this process with additional variables."""
    return {**os.environ, **more}


def use_cpu_level(wanted: str) -> str:
    """Make numba compile for a CPU level in this process and its children. Return the level in use.

    An empty level means the level of the CPU. Call this function before anything imports numba. Raises
    cpu_level.UnsupportedLevel if the CPU does not support the level.
    """
    cpu_level.check(wanted)
    host = cpu_level.of_host()
    if wanted and wanted != host:
        os.environ["NUMBA_CPU_NAME"] = cpu_level.processor(wanted)
        os.environ["NUMBA_CPU_FEATURES"] = cpu_level.features(wanted)
    return wanted or host


def hide_other_gpus(uuid: str) -> None:
    """Hide all GPUs except one from CUDA. Call this function before anything imports CUDA."""
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid


def restart_process(visible: str) -> NoReturn:
    """Restart this process with the same arguments and a different CUDA_VISIBLE_DEVICES. This clears all CUDA state."""
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # The file descriptor of the folder listing is already closed
            if str(opened.readlink()).startswith("/dev/nvidia"):
                os.set_inheritable(int(opened.name), False)
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)


#: Settings that override environment variables. Unlike environment variables, other processes cannot read them.
overrides: dict[str, Any] = {}


def override_settings(**settings: Any) -> None:
    """Override settings. From now on, `load` returns these values instead of values from the environment."""
    overrides.update(settings)
    load.cache_clear()


def override_worker_token(token: str) -> None:
    """Override the setting WORKER_TOKEN, so that no environment variable needs to contain the token."""
    override_settings(worker_token=token)


@lru_cache
def load() -> Settings:
    """Return the settings. Raises InvalidSettings."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise InvalidSettings(invalid_settings.describe(error, Settings)) from None


def load_for(role: str) -> Settings:
    """Return the settings for a process with this role, such as coordinator.

    If they are invalid or NODE_TYPE names another role, print why and exit with code 2.
    """
    try:
        settings = load()
        if settings.node_type not in ("", role):
            module = settings.node_type.replace("-", "_")
            raise InvalidSettings(
                f"NODE_TYPE is {settings.node_type}, but this process is a {role}: run python -m {module}, or unset"
                " NODE_TYPE"
            )
    except InvalidSettings as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr, flush=True)
        raise SystemExit(INVALID) from None
    return settings
