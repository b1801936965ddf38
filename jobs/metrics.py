"""All metrics with their names, help texts and labels. They use base units, and labels with few values.

Cluster-wide metrics are stored in Redis, so every coordinator exports the same value: aggregate replicas with max, not
sum. Metrics with `per_replica` differ between replicas: aggregate them with sum. Host metrics are exported once per
host, from the worker of that host with the latest heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Histogram buckets in seconds for the wait times and durations of jobs.
SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 60, 600, 3600, 21600, 86400)
#: Histogram buckets in seconds for the durations of requests to models.
INFERENCE_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
#: Ways in which leases end, as the Redis functions count them.
LEASE_OUTCOMES = ("committed", "released", "failed", "crashed", "expired", "stale")
#: Outcomes of webhook deliveries.
#: `ATTEMPT_OUTCOMES` contains the outcomes of single delivery attempts.
WEBHOOK_OUTCOMES, ATTEMPT_OUTCOMES = ("delivered", "dead", "dropped"), ("succeeded", "failed")
#: Maximum number of tenants with their own value of the label `tenant`.
#: All other tenants share the value `OTHER_TENANTS`.
MAX_TENANTS, OTHER_TENANTS = 100, "other"
#: States of a workflow.
WORKFLOW_STATES = ("running", "waiting", "done", "failed", "cancelling", "cancelled")
#: States of a live worker in metrics.
WORKER_STATES = ("starting", "parked", "idle", "busy", "draining", "drained")
PROFILE_STATES = ("recording", "collecting")
#: Reasons for GPU throttling: NVML's clock event reasons, except for gpu_idle, which does not slow a GPU down.
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
    #: Process whose metrics port exports the metric.
    shown_by: Literal["coordinator", "worker"] = "coordinator"


JOBS = Metric("cluster_jobs_total", "Finished jobs, by outcome.", ("kind", "outcome"), "counter")
SUBMITTED = Metric(
    "cluster_jobs_submitted_total", "Submitted jobs; retried submissions count once.", ("kind",), "counter"
)
# The name cannot be cluster_jobs, because OpenMetrics uses it as the base name of the counter cluster_jobs_total.
JOBS_KEPT = Metric("cluster_jobs_kept", "Stored jobs, by state.", ("state",))
DURATION = Metric(
    "cluster_job_duration_seconds", "Time from first lease to result of successful jobs.", ("kind",), "histogram"
)
WAIT = Metric("cluster_queue_wait_seconds", "Time from submission to first lease.", ("queue",), "histogram")
QUEUE_JOBS = Metric("cluster_queue_jobs", "Jobs waiting for a worker.", ("queue",))
QUEUE_OLDEST = Metric("cluster_queue_oldest_wait_seconds", "Wait time of the oldest job in the queue.", ("queue",))
QUEUE_LOAD = Metric("cluster_queue_load_seconds", "Estimated lane seconds of waiting and running work.", ("queue",))
UNITS = Metric("cluster_job_units_total", "Committed units.", ("kind", "device"), "counter")
TENANT_JOBS = Metric("cluster_tenant_jobs_total", "Successful jobs, by tenant.", ("tenant",), "counter")
TENANT_LANES = Metric(
    "cluster_tenant_lane_seconds_total", "Lane time used by a tenant's jobs.", ("tenant", "device"), "counter"
)
LEASES = Metric("cluster_leases_total", "Ended leases, by outcome.", ("outcome",), "counter")
WORKERS = Metric("cluster_workers", "Live workers.", ("device", "state"))
LANES = Metric("cluster_lanes", "Lanes of live workers.", ("device", "state"))
WORKER_RATE = Metric(
    "cluster_worker_rate_units", "Moving average of a lane's rate in units per second.", ("kind", "device")
)
WORKER_INFO = Metric("cluster_worker_info", "Live workers; always 1.", ("worker", "device", "host", "network"))
CONFIGURED = Metric("cluster_configured_workers", "Expected number of workers (CLUSTER_SIZE).", ("device",))
DESIRED = Metric(
    "cluster_desired_workers",
    "Number of workers that queued and running work needs, within the limits AUTOSCALE_*.",
    ("device",),
)
HOST_CPU = Metric("cluster_host_cpu_ratio", "CPU utilization of a host, 0..1.", ("host",))
HOST_MEMORY = Metric("cluster_host_memory_used_bytes", "Used memory of a host.", ("host",))
HOST_MEMORY_TOTAL = Metric("cluster_host_memory_total_bytes", "Total memory of a host.", ("host",))
HOST_CPUS = Metric("cluster_host_cpus", "Number of CPUs of a host.", ("host",))
# `network` is the number of a network namespace. A container sees only the traffic of its own network.
HOST_RECEIVED = Metric(
    "cluster_host_network_receive_bytes_total",
    "Bytes that a host received, by network namespace.",
    ("host", "network"),
    "counter",
)
HOST_SENT = Metric(
    "cluster_host_network_transmit_bytes_total",
    "Bytes that a host sent, by network namespace.",
    ("host", "network"),
    "counter",
)
HOST_LOAD1 = Metric("cluster_host_load1", "One-minute load average of a host.", ("host",))
HOST_SCORE = Metric(
    "cluster_host_score", "Load score of a host: 100 * load1 / cpus + 3 * mean GPU utilization in percent.", ("host",)
)
HOST_CLOCK = Metric(
    "cluster_host_clock_offset_seconds",
    "Offset of a host's clock from Redis' clock; positive if the host is ahead.",
    ("host",),
)
HOST_DISK_FREE = Metric(
    "cluster_host_disk_free_bytes", "Free space on a disk to which a host's workers write.", ("host", "disk")
)
HOST_DISK_TOTAL = Metric(
    "cluster_host_disk_total_bytes", "Size of a disk to which a host's workers write.", ("host", "disk")
)
WORKER_MEMORY = Metric(
    "cluster_worker_memory_bytes",
    "Resident memory of this worker and its child processes.",
    per_replica=True,
    shown_by="worker",
)

_GPU = ("worker", "gpu")
GPU_INFO = Metric("cluster_gpu_info", "GPUs of live workers, by UUID; always 1.", (*_GPU, "index", "name"))
GPU_UTILIZATION = Metric(
    "cluster_gpu_utilization_ratio", "Fraction of time during which a kernel was running, 0..1.", _GPU
)
GPU_SM_ACTIVE = Metric("cluster_gpu_sm_active_ratio", "Fraction of cycles during which an SM was active, 0..1.", _GPU)
GPU_MEMORY = Metric("cluster_gpu_memory_used_bytes", "Used memory of a GPU, including other processes.", _GPU)
GPU_MEMORY_TOTAL = Metric("cluster_gpu_memory_total_bytes", "Total memory of a GPU.", _GPU)
GPU_TEMPERATURE = Metric("cluster_gpu_temperature_celsius", "Core temperature of a GPU.", _GPU)
GPU_POWER = Metric("cluster_gpu_power_watts", "Power draw of a GPU.", _GPU)
GPU_ENERGY = Metric(
    "cluster_gpu_energy_joules_total", "Energy that a GPU has used since its driver was loaded.", _GPU, "counter"
)
GPU_CLOCK = Metric("cluster_gpu_sm_clock_hertz", "SM clock of a GPU.", _GPU)
GPU_MEMORY_CLOCK = Metric("cluster_gpu_memory_clock_hertz", "Memory clock of a GPU.", _GPU)
GPU_PCIE_RECEIVED = Metric(
    "cluster_gpu_pcie_receive_bytes_per_second", "Rate at which a GPU receives data over PCIe.", _GPU
)
GPU_PCIE_SENT = Metric("cluster_gpu_pcie_transmit_bytes_per_second", "Rate at which a GPU sends data over PCIe.", _GPU)
GPU_THROTTLED = Metric("cluster_gpu_throttled", "1 while a GPU is throttled for this reason.", (*_GPU, "reason"))
GPU_CORDONED = Metric("cluster_gpu_cordoned", "1 while a worker does not use a GPU because it is unhealthy.", _GPU)

AUDIT_UNEXPORTED = Metric(
    "cluster_audit_unexported_seconds", "Age of the oldest audit log entry that is not yet in AUDIT_FILE; 0 if all are."
)
ARTIFACT_BYTES = Metric(
    "cluster_artifact_bytes", "Bytes of artifact files, by whether an artifact uses them.", ("state",)
)
ARTIFACT_FILES = Metric(
    "cluster_artifact_files", "Number of artifact files, by whether an artifact uses them.", ("state",)
)
# Profile metrics cover only profiles that are recording or collecting. Finished profiles are files.
PROFILES = Metric("cluster_profiles", "Profiles that are recording or collecting.", ("state",))
PROFILE_SAMPLES = Metric("cluster_profile_samples", "Samples of active profiles.")
PROFILE_MISSED = Metric(
    "cluster_profile_missed_samples", "Samples that active profiles missed: too late, or not written."
)
PROFILE_BYTES = Metric("cluster_profile_bytes", "Disk space on hosts that active profiles use.")
WEBHOOKS = Metric(
    "cluster_webhook_deliveries_total", "Finished webhook deliveries, by outcome.", ("outcome",), "counter"
)
WEBHOOK_ATTEMPTS = Metric(
    "cluster_webhook_attempts_total", "Attempts to deliver a webhook, by outcome.", ("outcome",), "counter"
)
WEBHOOKS_PENDING = Metric("cluster_webhook_pending", "Webhooks that are not yet delivered.")
WEBHOOKS_OLDEST = Metric("cluster_webhook_oldest_seconds", "Age of the oldest webhook that is not yet delivered.")
WEBHOOKS_DEAD = Metric(
    "cluster_webhook_dead", "Webhooks that failed permanently within the last week and were not retried."
)
# The leader counts workflows regularly. Workflow metrics come from its latest count.
WORKFLOWS = Metric("cluster_workflows", "Stored workflows, by state.", ("state",))
WORKFLOW_IDLE = Metric(
    "cluster_workflow_idle_seconds", "Longest time for which an active workflow has had no waiting or running job."
)
WORKFLOWS_AGE = Metric("cluster_workflow_census_age_seconds", "Time since the leader last counted the workflows.")
SCHEDULES_LATE = Metric(
    "cluster_schedule_late_seconds", "Time for which the most overdue schedule has been waiting for the leader."
)
BROKEN = Metric("cluster_broken", "Number of unreadable jobs and keys found in Redis.")
SKIPPED = Metric(
    "cluster_skipped_entries_total",
    "Entries in Redis that a read skipped because they are invalid.",
    ("what",),
    "counter",
    per_replica=True,
)
BUILD = Metric("cluster_build_info", "Version of this coordinator; always 1.", ("version",), per_replica=True)
REDIS_UP = Metric("cluster_redis_up", "1 if this coordinator can reach Redis.", (), "gauge", per_replica=True)
LEADER = Metric("cluster_leader", "1 if this coordinator is the leader.", (), "gauge", per_replica=True)
HTTP_REQUESTS = Metric(
    "cluster_http_requests_total",
    "HTTP requests that were answered.",
    ("method", "route", "status"),
    "counter",
    per_replica=True,
)
HTTP_SECONDS = Metric(
    "cluster_http_request_duration_seconds",
    "Time from an HTTP request to its response.",
    ("method", "route"),
    "histogram",
    per_replica=True,
)
_MODEL = ("tenant", "model")
INFERENCES = Metric(
    "cluster_inference_requests_total",
    "Finished requests to models.",
    (*_MODEL, "status"),
    "counter",
    per_replica=True,
)
INFERENCE_SECONDS = Metric(
    "cluster_inference_duration_seconds",
    "Time from a request to a model to the last byte of the response.",
    _MODEL,
    "histogram",
    per_replica=True,
)
FIRST_TOKEN_SECONDS = Metric(
    "cluster_inference_first_token_seconds",
    "Time from a streaming request to the first frame of the response.",
    _MODEL,
    "histogram",
    per_replica=True,
)
TOKENS = Metric(
    "cluster_inference_tokens_total",
    "Prompt and completion tokens, as counted by the engines.",
    (*_MODEL, "what"),
    "counter",
    per_replica=True,
)
SERVICE_REPLICAS = Metric(
    "cluster_service_replicas",
    "Service replicas, by state; services beyond the first 100 by name are combined.",
    ("tenant", "service", "state"),
)
SERVICE_DESIRED = Metric(
    "cluster_service_desired_replicas",
    "Desired replicas of a service; 0 while it is stopped or sleeping.",
    ("tenant", "service"),
)

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

#: Metrics under the names of grid-cli, in /metrics of the leading coordinator and in GET /api/metrics.
GRID_SUBMITTED = Metric("grid_tasks_submitted_total", "Submitted jobs.", (), "counter")
GRID_COMPLETED = Metric("grid_tasks_completed_total", "Finished jobs, by success.", ("status",), "counter")
GRID_DURATION = Metric(
    "grid_task_duration_seconds", "Time from first lease to result of successful jobs.", (), "histogram"
)
GRID_SCORE = Metric("grid_node_health_score", HOST_SCORE.help, ("host",))
GRID_ACTIVE = Metric("grid_active_tasks", "Running jobs.")
GRID = (GRID_SUBMITTED, GRID_COMPLETED, GRID_DURATION, GRID_SCORE, GRID_ACTIVE)
