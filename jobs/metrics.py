"""Every metric: name, help, labels. Base units, bounded labels, never a job id.

Cluster-wide figures live in Redis and every coordinator shows the same value: over replicas take max, never sum.
The exceptions, each replica's own, are marked `per_replica`: sum those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Upper bounds of the histograms of jobs' waits and durations.
SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 60, 600, 3600, 21600, 86400)


@dataclass(frozen=True)
class Metric:
    name: str
    help: str
    labels: tuple[str, ...] = ()
    type: Literal["counter", "gauge", "histogram"] = "gauge"
    per_replica: bool = False


JOBS = Metric("cluster_jobs_total", "Jobs that ended, by outcome.", ("kind", "outcome"), "counter")
JOBS_STATE = Metric("cluster_jobs", "Jobs kept, by state.", ("state",))
DURATION = Metric("cluster_job_duration_seconds", "First lease to result of done jobs.", ("kind",), "histogram")
WAIT = Metric("cluster_queue_wait_seconds", "Submission to first lease.", ("queue",), "histogram")
QUEUE_JOBS = Metric("cluster_queue_jobs", "Jobs that wait for a worker.", ("queue",))
QUEUE_OLDEST = Metric("cluster_queue_oldest_wait_seconds", "Age of the first job in the queue.", ("queue",))
QUEUE_LOAD = Metric("cluster_queue_load_seconds", "Estimated lane seconds of work that waits or runs.", ("queue",))
UNITS = Metric("cluster_job_units_total", "Units committed.", ("kind", "device"), "counter")
LEASES = Metric("cluster_leases_total", "Leases that ended, by outcome.", ("outcome",), "counter")
WORKERS = Metric("cluster_workers", "Live workers.", ("device", "state"))
LANES = Metric("cluster_lanes", "Lanes of live workers.", ("device", "state"))
WORKER_RATE = Metric("cluster_worker_rate_units", "Units/s a lane reached last, averaged.", ("kind", "device"))
WORKER_INFO = Metric("cluster_worker_info", "Live workers, always 1.", ("worker", "device", "host"))
DESIRED = Metric("cluster_desired_workers", "Workers wanted (CLUSTER_SIZE).", ("device",))
NODE_CPU = Metric("cluster_node_cpu_ratio", "CPU in use on a worker's host, 0..1.", ("worker",))
NODE_MEMORY = Metric("cluster_node_memory_used_bytes", "Memory in use on a worker's host.", ("worker",))
NODE_RECEIVED = Metric(
    "cluster_node_network_receive_bytes_total", "Bytes a worker's host received.", ("worker",), "counter"
)
NODE_SENT = Metric("cluster_node_network_transmit_bytes_total", "Bytes a worker's host sent.", ("worker",), "counter")
REDIS_UP = Metric("cluster_redis_up", "1 when this replica reaches Redis.", (), "gauge", per_replica=True)
LEADER = Metric("cluster_leader", "1 when this replica is the janitor.", (), "gauge", per_replica=True)
HTTP_REQUESTS = Metric(
    "cluster_http_requests_total", "Requests answered.", ("method", "route", "status"), "counter", per_replica=True
)
HTTP_SECONDS = Metric(
    "cluster_http_request_duration_seconds", "Time to answer.", ("method", "route"), "histogram", per_replica=True
)

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
