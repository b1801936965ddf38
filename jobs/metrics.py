"""Every metric: name, help, labels. Base units, bounded labels, never a job id.

Cluster-wide figures live in Redis and every coordinator shows the same value: over replicas take max, never sum.
The exceptions, each replica's own, are marked `per_replica`: sum those.
Figures of a host are shown once a host, as the worker on it that was heard of last reports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Upper bounds of the histograms of jobs' waits and durations.
SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 60, 600, 3600, 21600, 86400)
#: Upper bounds of the histograms of requests to models.
INFERENCE_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
#: How a lease ends; the functions count these.
LEASE_OUTCOMES = ("committed", "released", "failed", "crashed", "expired", "stale")
#: How a delivery of a webhook ends, and an attempt at one.
WEBHOOK_OUTCOMES, ATTEMPT_OUTCOMES = ("delivered", "dead", "dropped"), ("succeeded", "failed")
#: Tenants that metrics name, the first ones by name; the others together are OTHER_TENANTS.
MAX_TENANTS, OTHER_TENANTS = 100, "other"
#: States of a workflow.
WORKFLOW_STATES = ("running", "waiting", "done", "failed", "cancelling", "cancelled")
#: States of a live worker.
WORKER_STATES = ("starting", "parked", "idle", "busy", "draining", "drained")
PROFILE_STATES = ("recording", "collecting")
#: Why a GPU slows down: NVML's names of its clock event reasons, without gpu_idle, which slows nothing down.
THROTTLE_REASONS = (
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "other",
)


@dataclass(frozen=True)
class Metric:
    name: str
    help: str
    labels: tuple[str, ...] = ()
    type: Literal["counter", "gauge", "histogram"] = "gauge"
    per_replica: bool = False
    #: Who shows it on its port for metrics.
    shown_by: Literal["coordinator", "worker"] = "coordinator"


JOBS = Metric("cluster_jobs_total", "Jobs that ended, by outcome.", ("kind", "outcome"), "counter")
SUBMITTED = Metric(
    "cluster_jobs_submitted_total", "Jobs that were submitted; what is tried again is no new one.", ("kind",), "counter"
)
# Not cluster_jobs: in OpenMetrics that is the name of the counter above.
JOBS_KEPT = Metric("cluster_jobs_kept", "Jobs kept, by state.", ("state",))
DURATION = Metric("cluster_job_duration_seconds", "First lease to result of done jobs.", ("kind",), "histogram")
WAIT = Metric("cluster_queue_wait_seconds", "Submission to first lease.", ("queue",), "histogram")
QUEUE_JOBS = Metric("cluster_queue_jobs", "Jobs that wait for a worker.", ("queue",))
QUEUE_OLDEST = Metric("cluster_queue_oldest_wait_seconds", "Age of the first job in the queue.", ("queue",))
QUEUE_LOAD = Metric("cluster_queue_load_seconds", "Estimated lane seconds of work that waits or runs.", ("queue",))
UNITS = Metric("cluster_job_units_total", "Units committed.", ("kind", "device"), "counter")
TENANT_JOBS = Metric("cluster_tenant_jobs_total", "Jobs of a tenant that were done.", ("tenant",), "counter")
TENANT_LANES = Metric(
    "cluster_tenant_lane_seconds_total", "Time of lanes that a tenant's jobs took.", ("tenant", "device"), "counter"
)
LEASES = Metric("cluster_leases_total", "Leases that ended, by outcome.", ("outcome",), "counter")
WORKERS = Metric("cluster_workers", "Live workers.", ("device", "state"))
LANES = Metric("cluster_lanes", "Lanes of live workers.", ("device", "state"))
WORKER_RATE = Metric("cluster_worker_rate_units", "Units/s a lane reached last, averaged.", ("kind", "device"))
WORKER_INFO = Metric("cluster_worker_info", "Live workers, always 1.", ("worker", "device", "host", "network"))
CONFIGURED = Metric("cluster_configured_workers", "Workers wanted (CLUSTER_SIZE).", ("device",))
DESIRED = Metric("cluster_desired_workers", "Workers that the work needs, within AUTOSCALE_*.", ("device",))
HOST_CPU = Metric("cluster_host_cpu_ratio", "CPU in use on a host, 0..1.", ("host",))
HOST_MEMORY = Metric("cluster_host_memory_used_bytes", "Memory in use on a host.", ("host",))
HOST_MEMORY_TOTAL = Metric("cluster_host_memory_total_bytes", "Memory of a host.", ("host",))
HOST_CPUS = Metric("cluster_host_cpus", "CPUs of a host.", ("host",))
# A container sees its own network only: `network` is the number of a network namespace, one a host but for containers.
HOST_RECEIVED = Metric(
    "cluster_host_network_receive_bytes_total", "Bytes a network of a host received.", ("host", "network"), "counter"
)
HOST_SENT = Metric(
    "cluster_host_network_transmit_bytes_total", "Bytes a network of a host sent.", ("host", "network"), "counter"
)
HOST_LOAD1 = Metric("cluster_host_load1", "Load of a host, averaged over a minute.", ("host",))
HOST_SCORE = Metric("cluster_host_score", "How busy a host is: 100 * load1 / cpus + 3 * mean GPU %.", ("host",))
HOST_CLOCK = Metric(
    "cluster_host_clock_offset_seconds", "Time by which the clock of a host is ahead of Redis' clock.", ("host",)
)
HOST_DISK_FREE = Metric("cluster_host_disk_free_bytes", "Room on a disk that a host's workers fill.", ("host", "disk"))
HOST_DISK_TOTAL = Metric(
    "cluster_host_disk_total_bytes", "Size of a disk that a host's workers fill.", ("host", "disk")
)
WORKER_MEMORY = Metric(
    "cluster_worker_memory_bytes",
    "Resident memory of this worker and its children.",
    per_replica=True,
    shown_by="worker",
)

_GPU = ("worker", "gpu")
GPU_INFO = Metric("cluster_gpu_info", "GPUs of live workers by UUID, always 1.", (*_GPU, "index", "name"))
GPU_UTILIZATION = Metric("cluster_gpu_utilization_ratio", "Share of time in which a kernel ran, 0..1.", _GPU)
GPU_SM_ACTIVE = Metric("cluster_gpu_sm_active_ratio", "Share of cycles in which an SM had work, 0..1.", _GPU)
GPU_MEMORY = Metric("cluster_gpu_memory_used_bytes", "Memory in use on a GPU, whoever uses it.", _GPU)
GPU_MEMORY_TOTAL = Metric("cluster_gpu_memory_total_bytes", "Memory of a GPU.", _GPU)
GPU_TEMPERATURE = Metric("cluster_gpu_temperature_celsius", "Temperature of a GPU's core.", _GPU)
GPU_POWER = Metric("cluster_gpu_power_watts", "Power that a GPU draws.", _GPU)
GPU_ENERGY = Metric(
    "cluster_gpu_energy_joules_total", "Energy that a GPU used since its driver was loaded.", _GPU, "counter"
)
GPU_CLOCK = Metric("cluster_gpu_sm_clock_hertz", "Clock of a GPU's SMs.", _GPU)
GPU_MEMORY_CLOCK = Metric("cluster_gpu_memory_clock_hertz", "Clock of a GPU's memory.", _GPU)
GPU_PCIE_RECEIVED = Metric("cluster_gpu_pcie_receive_bytes_per_second", "What a GPU now receives over PCIe.", _GPU)
GPU_PCIE_SENT = Metric("cluster_gpu_pcie_transmit_bytes_per_second", "What a GPU now sends over PCIe.", _GPU)
GPU_THROTTLED = Metric("cluster_gpu_throttled", "1 while a GPU runs slower for this reason.", (*_GPU, "reason"))
GPU_CORDONED = Metric("cluster_gpu_cordoned", "1 while a worker gives a GPU no work because it is sick.", _GPU)

AUDIT_UNEXPORTED = Metric(
    "cluster_audit_unexported_seconds", "Age of the oldest entry of the audit log that AUDIT_FILE lacks; 0 without one."
)
ARTIFACT_BYTES = Metric(
    "cluster_artifact_bytes", "Bytes of files of artifacts, by whether an artifact has them.", ("state",)
)
ARTIFACT_FILES = Metric("cluster_artifact_files", "Files of artifacts, by whether an artifact has them.", ("state",))
# Figures of profiles are those of the profiles that live: what is done is a file.
PROFILES = Metric("cluster_profiles", "Profiles that record, or whose recordings are collected.", ("state",))
PROFILE_SAMPLES = Metric("cluster_profile_samples", "Samples of the profiles that live.")
PROFILE_MISSED = Metric(
    "cluster_profile_missed_samples", "Samples of the profiles that live whose time passed, or that were not written."
)
PROFILE_BYTES = Metric("cluster_profile_bytes", "Bytes that the profiles that live take on the disks of hosts.")
WEBHOOKS = Metric(
    "cluster_webhook_deliveries_total", "Deliveries of webhooks that ended, by how.", ("outcome",), "counter"
)
WEBHOOK_ATTEMPTS = Metric(
    "cluster_webhook_attempts_total", "Attempts to deliver a webhook, by what came of them.", ("outcome",), "counter"
)
WEBHOOKS_PENDING = Metric("cluster_webhook_pending", "Webhooks that are not delivered yet.")
WEBHOOKS_OLDEST = Metric("cluster_webhook_oldest_seconds", "Age of the oldest webhook that is not delivered yet.")
WEBHOOKS_DEAD = Metric("cluster_webhook_dead", "Webhooks that were given up within a week and not tried again.")
# Figures of workflows are those of the leader's last census.
WORKFLOWS = Metric("cluster_workflows", "Workflows kept, by state.", ("state",))
WORKFLOW_IDLE = Metric(
    "cluster_workflow_idle_seconds", "Longest time for which a workflow that goes on has had no job that waits or runs."
)
WORKFLOWS_AGE = Metric("cluster_workflow_census_age_seconds", "Time since the leader has counted the workflows.")
SCHEDULES_LATE = Metric(
    "cluster_schedule_late_seconds", "Time for which the schedule that has been due the longest waits for the leader."
)
BROKEN = Metric("cluster_broken", "Jobs and keys that were found broken in Redis.")
SKIPPED = Metric(
    "cluster_skipped_entries_total",
    "Reads of entries in Redis that were skipped because they are broken.",
    ("what",),
    "counter",
    per_replica=True,
)
BUILD = Metric("cluster_build_info", "Version of this coordinator, always 1.", ("version",), per_replica=True)
REDIS_UP = Metric("cluster_redis_up", "1 when this replica reaches Redis.", (), "gauge", per_replica=True)
LEADER = Metric("cluster_leader", "1 if this replica leads.", (), "gauge", per_replica=True)
HTTP_REQUESTS = Metric(
    "cluster_http_requests_total", "Requests answered.", ("method", "route", "status"), "counter", per_replica=True
)
HTTP_SECONDS = Metric(
    "cluster_http_request_duration_seconds", "Time to answer.", ("method", "route"), "histogram", per_replica=True
)
_MODEL = ("tenant", "model")
INFERENCES = Metric(
    "cluster_inference_requests_total",
    "Requests to models that ended.",
    (*_MODEL, "status"),
    "counter",
    per_replica=True,
)
INFERENCE_SECONDS = Metric(
    "cluster_inference_duration_seconds",
    "Time from a request to a model to its last byte.",
    _MODEL,
    "histogram",
    per_replica=True,
)
FIRST_TOKEN_SECONDS = Metric(
    "cluster_inference_first_token_seconds",
    "Time from a request that streams to its first frame.",
    _MODEL,
    "histogram",
    per_replica=True,
)
TOKENS = Metric(
    "cluster_inference_tokens_total",
    "Tokens of prompts and answers, as engines count them.",
    (*_MODEL, "what"),
    "counter",
    per_replica=True,
)
SERVICE_REPLICAS = Metric(
    "cluster_service_replicas",
    "Replicas of services, by state; the first 100 services by name, others together.",
    ("tenant", "service", "state"),
)
SERVICE_DESIRED = Metric(
    "cluster_service_desired_replicas",
    "Replicas that a service is to have; 0 while it is stopped or sleeps.",
    ("tenant", "service"),
)

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

#: Names of grid-cli, which the recording rules of grid.yml and GET /api/metrics show.
GRID_SUBMITTED = Metric("grid_tasks_submitted_total", "Jobs that were submitted.", (), "counter")
GRID_COMPLETED = Metric("grid_tasks_completed_total", "Jobs that ended, by whether done.", ("status",), "counter")
GRID_DURATION = Metric("grid_task_duration_seconds", "First lease to result of done jobs.", (), "histogram")
GRID_SCORE = Metric("grid_node_health_score", HOST_SCORE.help, ("host",))
GRID_ACTIVE = Metric("grid_active_tasks", "Jobs that run.")
#: Each of them, and ours of which it is made.
GRID = {
    GRID_SUBMITTED: SUBMITTED,
    GRID_COMPLETED: JOBS,
    GRID_DURATION: DURATION,
    GRID_SCORE: HOST_SCORE,
    GRID_ACTIVE: JOBS_KEPT,
}


def grid_series() -> dict[str, str]:
    """Return the names of the series of GRID, by those of ours; a histogram has three."""
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {
        metric.name + part: ours.name + part for metric, ours in GRID.items() for part in parts.get(metric.type, ("",))
    }
