"""Definitions of all dashboards. After a change, run `.venv/bin/python -m grafana`.

All coordinators report the same cluster metrics, so queries use the maximum. Metrics of each replica are summed.
"""

from __future__ import annotations

from typing import Any

from grafana.render import Dashboard, Panel, Query, Row
from jobs.settings import Settings

WARN, BAD = "orange", "red"


def panel(title: str, unit: str, about: str, *queries: str | tuple[str, str], **more: Any) -> Panel:
    asked = tuple(Query(*((query,) if isinstance(query, str) else query)) for query in queries)
    return Panel(title=title, unit=unit, about=about, queries=asked, **more)


def stat(title: str, unit: str, about: str, expr: str, **more: Any) -> Panel:
    return panel(title, unit, about, expr, **{"shape": "stat", "width": 4, "height": 4, **more})


def threshold(name: str, where: str = "") -> tuple[str, str]:
    """Return the query for an alert's threshold. `name` omits the prefix ALERT_; the metric `where` must exist."""
    return f"alert:{name}:threshold" + f" and on () {where}" * bool(where), "alert beyond"


def quantiles(buckets: str, legend: str = "") -> tuple[tuple[str, str], ...]:
    """Return queries for p50, p95 and p99 of a histogram's buckets, without results if nothing was observed."""
    shares = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    return tuple((f"histogram_quantile({share}, {buckets}) >= 0", f"{name} {legend}".strip()) for name, share in shares)


NOW = (
    stat(
        "Jobs running",
        "short",
        "Jobs with at least one lease granted.",
        'max(cluster_jobs_kept{state="running"})',
        decimals=0,
    ),
    stat(
        "Jobs waiting",
        "short",
        "Jobs in all queues that wait for a worker.",
        "max(sum by (instance) (cluster_queue_jobs))",
        decimals=0,
    ),
    stat(
        "Workers",
        "short",
        "Workers with a heartbeat in the last five seconds.",
        "cluster:cluster_workers:sum",
        decimals=0,
    ),
    stat(
        "Configured workers",
        "short",
        "Value of CLUSTER_SIZE; 0 if it is not set.",
        "max(cluster_configured_workers)",
        decimals=0,
    ),
    stat(
        "Firing alerts",
        "short",
        "Number of firing alerts; see the table below and docs/operations.md.",
        'count(ALERTS{alertstate="firing"}) or vector(0)',
        decimals=0,
        thresholds=((1, BAD),),
    ),
    panel(
        "Lanes busy",
        "percentunit",
        "Share of all lanes that are computing. If it is low while jobs are waiting, see the dashboard Workers.",
        'max(sum by (instance) (cluster_lanes{state="busy"})) / (max(sum by (instance) (cluster_lanes)) > 0)',
        shape="gauge",
        width=4,
        height=4,
        high=1,
        decimals=0,
    ),
)

WORK = (
    panel(
        "Units committed per second",
        "short",
        "Committed units per second, by kind and device.",
        ("kind_device:cluster_job_units:rate1m", "{{kind}} on {{device}}"),
        stacked=True,
    ),
    panel(
        "Finished jobs per second",
        "cps",
        "Finished jobs by outcome, averaged over five minutes.",
        ("sum by (outcome) (kind_outcome:cluster_jobs:rate5m)", "{{outcome}}"),
        stacked=True,
    ),
    panel(
        "Failed jobs",
        "percentunit",
        "Share of failed jobs among the jobs that finished in the last 30 minutes, by kind.",
        ("kind:cluster_job_failures_per_jobs:ratio_rate30m", "{{kind}}"),
        threshold("job_failures_ratio"),
        high=1,
    ),
    panel(
        "Jobs waiting",
        "short",
        "Waiting jobs by requested device.",
        ("device:cluster_queue_jobs:sum", "{{device}}"),
        stacked=True,
        decimals=0,
    ),
    panel(
        "Wait, p95",
        "s",
        "Time after submission within which 19 of 20 jobs started, by queue.",
        ("queue:cluster_queue_wait_seconds:p95_5m", "{{queue}}"),
        threshold("queue_wait_seconds"),
    ),
    panel(
        "Lanes",
        "short",
        "Lanes of live workers, busy and idle.",
        ("max by (device, state) (cluster_lanes)", "{{device}} {{state}}"),
        stacked=True,
        decimals=0,
    ),
)

HEALTH = (
    panel(
        "Reachable replicas",
        "short",
        "Prometheus targets that are up, by service.",
        ("sum by (job) (up)", "{{job}}"),
        decimals=0,
    ),
    panel(
        "Server errors",
        "percentunit",
        "Share of API responses with a 5xx status.",
        ("cluster:cluster_http_errors_per_requests:ratio_rate5m", "errors"),
        threshold("api_errors_ratio"),
        high=1,
    ),
    panel(
        "Redis memory",
        "percentunit",
        "Share of Redis' memory limit in use; at 100 %, new jobs are rejected.",
        ("instance:redis_memory_used:ratio", "used"),
        threshold("redis_memory_ratio"),
        high=1,
    ),
    panel(
        "Broken entries",
        "short",
        "Jobs and keys in Redis that cannot be read; see the alert BrokenFound.",
        ("max(cluster_broken)", "broken"),
        decimals=0,
        thresholds=((1, BAD),),
    ),
    panel(
        "Firing alerts",
        "short",
        "Firing alerts; docs/operations.md describes what to do about each.",
        'ALERTS{alertstate="firing"} or label_replace(vector(0), "alertname", "none", "", "")',
        shape="table",
        width=24,
        height=6,
        low=None,
    ),
)

OVERVIEW = Dashboard(
    name="overview",
    title="Cluster overview",
    about="Availability, load and problems of the cluster.",
    rows=(
        Row("Now", NOW),
        Row("Work", WORK),
        Row("Health", HEALTH),
    ),
)

THROUGHPUT = (
    panel(
        "Finished jobs per second",
        "cps",
        "Finished jobs by kind and outcome.",
        ('max by (kind, outcome) (rate(cluster_jobs_total{kind=~"$kind"}[$__rate_interval]))', "{{kind}} {{outcome}}"),
        stacked=True,
    ),
    panel(
        "Units committed per second",
        "short",
        "Committed units by kind and device. A unit is a number of collatz, or a replica of thread.",
        (
            'max by (kind, device) (rate(cluster_job_units_total{kind=~"$kind"}[$__rate_interval]))',
            "{{kind}} on {{device}}",
        ),
    ),
    panel(
        "Failed jobs",
        "percentunit",
        "Share of failed jobs among the jobs that were done or failed in the last 30 minutes.",
        ('kind:cluster_job_failures_per_jobs:ratio_rate30m{kind=~"$kind"}', "{{kind}}"),
        threshold("job_failures_ratio"),
        high=1,
    ),
    panel(
        "Busy lanes by tenant",
        "short",
        "Lane seconds per second used by a tenant's jobs.",
        (
            "sum by (tenant) (max by (tenant, device) (rate(cluster_tenant_lane_seconds_total[$__rate_interval])))",
            "{{tenant}}",
        ),
        stacked=True,
    ),
    panel(
        "Jobs done by tenant",
        "cps",
        "Jobs of each tenant that were done per second.",
        ("max by (tenant) (rate(cluster_tenant_jobs_total[$__rate_interval]))", "{{tenant}}"),
        stacked=True,
    ),
    panel(
        "Stored jobs",
        "short",
        "Jobs in Redis by state; finished jobs are kept for RESULT_TTL.",
        ("max by (state) (cluster_jobs_kept)", "{{state}}"),
        decimals=0,
    ),
)

JOB_TIMES = (
    panel(
        "Duration",
        "s",
        "Time from the first lease to the result, for jobs that are done.",
        *quantiles(
            'max by (kind, le) (rate(cluster_job_duration_seconds_bucket{kind=~"$kind"}[$__rate_interval]))', "{{kind}}"
        ),
    ),
    panel(
        "Wait",
        "s",
        "Time from submission to the first lease, for all jobs.",
        *quantiles("sum by (le) (max by (queue, le) (rate(cluster_queue_wait_seconds_bucket[$__rate_interval])))"),
    ),
    panel(
        "Mean duration",
        "s",
        "Total duration divided by the number of jobs done. Unlike quantiles from buckets, the mean is exact.",
        (
            (
                'max by (kind) (rate(cluster_job_duration_seconds_sum{kind=~"$kind"}[$__rate_interval])) / '
                '(max by (kind) (rate(cluster_job_duration_seconds_count{kind=~"$kind"}[$__rate_interval])) > 0)'
            ),
            "{{kind}}",
        ),
    ),
)

LEASES = (
    panel(
        "Finished leases per second",
        "cps",
        "committed: the result counts. released: returned. failed: the kernel raised an error. crashed, expired: "
        "the lane or its worker died. stale: the commit was too late and was ignored.",
        ("max by (outcome) (rate(cluster_leases_total[$__rate_interval]))", "{{outcome}}"),
        width=12,
    ),
    panel(
        "Lost leases",
        "percentunit",
        "Share of leases lost with their lane or worker; their work is repeated.",
        ("cluster:cluster_leases_lost_per_leases:ratio_rate15m", "lost"),
        threshold("leases_lost_ratio"),
        width=12,
        high=1,
    ),
)

WORKFLOWS = (
    panel(
        "Workflows",
        "short",
        "Stored workflows by state, as last counted by the leader.",
        ("max by (state) (cluster_workflows)", "{{state}}"),
        decimals=0,
    ),
    panel(
        "Idle workflow",
        "s",
        "Longest time for which a running workflow has had no waiting or running job.",
        ("max(cluster_workflow_idle_seconds)", "time"),
        threshold("workflow_seconds"),
    ),
    panel(
        "Age of the workflow counts",
        "s",
        "Time since the leader last processed and counted the workflows, which it does every ten seconds.",
        ("max(cluster_workflow_census_age_seconds)", "age"),
        threshold("workflow_seconds"),
    ),
    panel(
        "Late schedule",
        "s",
        "Time for which a schedule has been due without running.",
        ("max(cluster_schedule_late_seconds)", "time"),
        thresholds=((5.0, BAD),),
    ),
    panel(
        "Webhooks",
        "cps",
        "Finished deliveries; dead deliveries were abandoned (see cluster webhook dead).",
        ("max by (outcome) (rate(cluster_webhook_deliveries_total[$__rate_interval]))", "{{outcome}}"),
        ("max by (outcome) (rate(cluster_webhook_attempts_total[$__rate_interval]))", "attempts that {{outcome}}"),
    ),
    panel(
        "Pending webhooks",
        "short",
        "Number of pending deliveries.",
        ("max(cluster_webhook_pending)", "pending"),
        decimals=0,
    ),
    panel(
        "Oldest webhook",
        "s",
        "Age of the oldest pending delivery.",
        ("max(cluster_webhook_oldest_seconds)", "age"),
    ),
    panel(
        "Dead webhooks",
        "short",
        "Deliveries abandoned in the last week and not repeated (see cluster webhook dead).",
        ("max(cluster_webhook_dead)", "dead"),
        decimals=0,
        thresholds=((1.0, BAD),),
    ),
)

JOBS = Dashboard(
    name="jobs",
    title="Jobs",
    about="Throughput, durations and outcomes of jobs.",
    variables=(("kind", "cluster_jobs_total"),),
    rows=(
        Row("Throughput", THROUGHPUT),
        Row("Times", JOB_TIMES),
        Row("Leases", LEASES),
        Row("Workflows, schedules and webhooks", WORKFLOWS),
    ),
)

DEPTH = (
    panel(
        "Jobs waiting",
        "short",
        "Jobs waiting for a worker, by queue.",
        ('max by (queue) (cluster_queue_jobs{queue=~"$queue"})', "{{queue}}"),
        stacked=True,
        decimals=0,
    ),
    panel(
        "Age of the oldest job",
        "s",
        "Time since the oldest job's submission. A long job that is computed in turns counts too.",
        ('max by (queue) (cluster_queue_oldest_wait_seconds{queue=~"$queue"})', "{{queue}}"),
    ),
    panel(
        "Pending work",
        "s",
        "Estimated time that one lane would need for the waiting and running jobs.",
        ('max by (queue) (cluster_queue_load_seconds{queue=~"$queue"})', "{{queue}}"),
        stacked=True,
    ),
)

WAIT = (
    panel(
        "Wait by queue",
        "s",
        "Waiting time of jobs that started; jobs that are still waiting are not included.",
        *quantiles(
            'max by (queue, le) (rate(cluster_queue_wait_seconds_bucket{queue=~"$queue"}[$__rate_interval]))',
            "{{queue}}",
        ),
        width=12,
    ),
    panel(
        "Started jobs per second",
        "cps",
        "First leases granted, by queue.",
        ('max by (queue) (rate(cluster_queue_wait_seconds_count{queue=~"$queue"}[$__rate_interval]))', "{{queue}}"),
        width=12,
        stacked=True,
    ),
    panel(
        "Waits",
        "s",
        "Number of started jobs by waiting time; darker cells contain more jobs.",
        (
            (
                "sum by (le) (max by (queue, le) "
                '(increase(cluster_queue_wait_seconds_bucket{queue=~"$queue"}[$__rate_interval])))'
            ),
            "{{le}}",
        ),
        shape="heatmap",
        width=24,
        height=9,
        low=None,
    ),
)

QUEUES = Dashboard(
    name="queues",
    title="Queues",
    about="Waiting jobs, waiting times and pending work.",
    variables=(("queue", "cluster_queue_jobs"),),
    rows=(
        Row("Depth", DEPTH),
        Row("Wait from submission to the first lease", WAIT),
    ),
)

FLEET = (
    panel(
        "Workers",
        "short",
        "Live workers by device and state, the configured number (0: not set), and the number needed.",
        ("max by (device, state) (cluster_workers)", "{{device}} {{state}}"),
        ("max(cluster_configured_workers)", "configured"),
        ("max by (device) (cluster_desired_workers)", "{{device}} needed"),
        decimals=0,
    ),
    panel(
        "Lanes busy",
        "percentunit",
        "Share of the lanes that are computing, by device.",
        ("device:cluster_lanes_busy:ratio", "{{device}}"),
        high=1,
    ),
    panel(
        "Speed of a lane",
        "short",
        "Latest speed of a lane in units/s, averaged over workers.",
        ("max by (kind, device) (cluster_worker_rate_units)", "{{kind}} on {{device}}"),
    ),
    panel(
        "Live workers",
        "short",
        "Name, device and host of each live worker.",
        'max by (worker, device, host) (cluster_worker_info{worker=~"$worker"})',
        shape="table",
        width=12,
        low=None,
    ),
    panel(
        "Starts in 15 minutes",
        "short",
        "Number of process starts; investigate more starts than one update causes.",
        ('changes(process_start_time_seconds{job=~"cpu-worker|gpu-worker"}[15m])', "{{job}} {{instance}}"),
        width=12,
        decimals=0,
        thresholds=((3, WARN),),
    ),
)

HOSTS = (
    panel(
        "CPU in use",
        "percentunit",
        "Utilization of all CPUs of the host.",
        ('max by (host) (cluster_host_cpu_ratio{host=~"$host"})', "{{host}}"),
        high=1,
    ),
    panel(
        "Memory in use",
        "percentunit",
        "Share of the host's memory used by all processes.",
        ('host:cluster_host_memory_used:ratio{host=~"$host"}', "{{host}}"),
        threshold("host_memory_ratio"),
        high=1,
    ),
    panel(
        "Memory",
        "bytes",
        "Used and total memory of the host.",
        ('max by (host) (cluster_host_memory_used_bytes{host=~"$host"})', "{{host}} used"),
        ('max by (host) (cluster_host_memory_total_bytes{host=~"$host"})', "{{host}} total"),
    ),
    panel(
        "Received",
        "Bps",
        "Bytes per second that the host, or the networks of its containers, received.",
        (
            (
                "sum by (host) (max by (host, network) "
                '(rate(cluster_host_network_receive_bytes_total{host=~"$host"}[$__rate_interval])))'
            ),
            "{{host}}",
        ),
    ),
    panel(
        "Sent",
        "Bps",
        "Bytes per second that the host, or the networks of its containers, sent.",
        (
            (
                "sum by (host) (max by (host, network) "
                '(rate(cluster_host_network_transmit_bytes_total{host=~"$host"}[$__rate_interval])))'
            ),
            "{{host}}",
        ),
    ),
    panel(
        "Load",
        "short",
        "Load average over one minute; all CPUs are busy if it reaches the number of CPUs.",
        ('max by (host) (cluster_host_load1{host=~"$host"})', "{{host}}"),
    ),
    panel(
        "Score",
        "short",
        "Load score of the host: 100 for a load of 1 per core, plus 3 per percent of its GPUs.",
        ('max by (host) (cluster_host_score{host=~"$host"})', "{{host}}"),
    ),
    panel(
        "Clock",
        "s",
        "Time by which the host's clock is ahead of the clock of Redis.",
        ('max by (host) (cluster_host_clock_offset_seconds{host=~"$host"})', "{{host}}"),
    ),
    panel(
        "Disk space",
        "bytes",
        "Free space and size of the disks that workers write to.",
        ('max by (host, disk) (cluster_host_disk_free_bytes{host=~"$host"})', "{{host}} {{disk}} free"),
        ('max by (host, disk) (cluster_host_disk_total_bytes{host=~"$host"})', "{{host}} {{disk}} size"),
    ),
    panel(
        "CPUs",
        "short",
        "CPUs of the host; a worker has one lane per usable CPU.",
        ('max by (host) (cluster_host_cpus{host=~"$host"})', "{{host}}"),
        decimals=0,
    ),
)

PROCESSES = (
    panel(
        "Memory of workers",
        "bytes",
        "Resident memory of a worker and its child processes; shared pages count for each process.",
        ("cluster_worker_memory_bytes", "{{job}} {{instance}}"),
        width=12,
    ),
    panel(
        "CPU of workers' parents",
        "percentunit",
        "Share of one CPU used by the parent process, which leases and commits. Child processes, which compute, are"
        " excluded.",
        ('rate(process_cpu_seconds_total{job=~"cpu-worker|gpu-worker"}[$__rate_interval])', "{{job}} {{instance}}"),
        width=12,
    ),
)

WORKERS = Dashboard(
    name="workers",
    title="Workers and hosts",
    about="Workers, their load, and the free resources of their hosts.",
    variables=(("worker", "cluster_worker_info"), ("host", "cluster_worker_info")),
    rows=(
        Row("Fleet", FLEET),
        Row("Hosts, as reported by workers", HOSTS),
        Row("Processes, by address", PROCESSES),
    ),
)


def gpu(title: str, unit: str, about: str, metric: str, **more: Any) -> Panel:
    query = f'max by (worker, gpu) ({metric}{{worker=~"$worker"}})'
    return panel(title, unit, about, (query, "{{worker}} {{gpu}}"), needs="gpu", **more)


def dcgm(title: str, unit: str, about: str, expr: str, **more: Any) -> Panel:
    return panel(title, unit, about, (expr, "{{Hostname}} {{gpu}}"), needs="dcgm", **more)


GPUS = (
    gpu(
        "Utilization",
        "percentunit",
        "Share of time in which at least one kernel was running.",
        "cluster_gpu_utilization_ratio",
        high=1,
    ),
    gpu(
        "SMs active",
        "percentunit",
        "Share of cycles in which an SM had work, which is more accurate than the utilization.",
        "cluster_gpu_sm_active_ratio",
        high=1,
    ),
    panel(
        "Memory in use",
        "percentunit",
        "Share of the GPU's memory used by all processes.",
        ('worker_gpu:cluster_gpu_memory_used:ratio{worker=~"$worker"}', "{{worker}} {{gpu}}"),
        threshold("gpu_memory_ratio", "worker_gpu:cluster_gpu_memory_used:ratio"),
        high=1,
        needs="gpu",
    ),
    panel(
        "Memory",
        "bytes",
        "Used and total memory of the GPU.",
        ('max by (worker, gpu) (cluster_gpu_memory_used_bytes{worker=~"$worker"})', "{{worker}} {{gpu}} used"),
        ('max by (worker, gpu) (cluster_gpu_memory_total_bytes{worker=~"$worker"})', "{{worker}} {{gpu}} total"),
        needs="gpu",
    ),
    panel(
        "Temperature",
        "celsius",
        "Temperature of the GPU core.",
        ('max by (worker, gpu) (cluster_gpu_temperature_celsius{worker=~"$worker"})', "{{worker}} {{gpu}}"),
        threshold("gpu_celsius", "cluster_gpu_temperature_celsius"),
        needs="gpu",
    ),
    gpu("Power", "watt", "Power consumption of the GPU.", "cluster_gpu_power_watts"),
    panel(
        "Energy per hour",
        "joule",
        "Energy consumed by the GPU in the last hour.",
        (
            'max by (worker, gpu) (increase(cluster_gpu_energy_joules_total{worker=~"$worker"}[1h]))',
            "{{worker}} {{gpu}}",
        ),
        needs="gpu",
    ),
    gpu("SM clock", "hertz", "Clock of the SMs.", "cluster_gpu_sm_clock_hertz"),
    gpu("Memory clock", "hertz", "Clock of the memory.", "cluster_gpu_memory_clock_hertz"),
    panel(
        "PCIe",
        "Bps",
        "Bytes per second over PCIe, as seen by the GPU.",
        (
            'max by (worker, gpu) (cluster_gpu_pcie_receive_bytes_per_second{worker=~"$worker"})',
            "{{worker}} {{gpu}} received",
        ),
        (
            'max by (worker, gpu) (cluster_gpu_pcie_transmit_bytes_per_second{worker=~"$worker"})',
            "{{worker}} {{gpu}} sent",
        ),
        needs="gpu",
    ),
    panel(
        "Throttling",
        "short",
        "Red while the GPU is throttled for the reason. A power cap is normal at full load; a thermal limit is not.",
        ('max by (worker, gpu, reason) (cluster_gpu_throttled{worker=~"$worker"})', "{{worker}} {{gpu}} {{reason}}"),
        shape="state-timeline",
        thresholds=((1, BAD),),
        high=1,
        needs="gpu",
    ),
    panel(
        "GPUs",
        "short",
        "Model, index and UUID of each GPU.",
        'max by (worker, gpu, index, name) (cluster_gpu_info{worker=~"$worker"})',
        shape="table",
        width=24,
        height=5,
        low=None,
        needs="gpu",
    ),
)

DCGM = (
    dcgm(
        "Utilization",
        "percent",
        "Share of time in which at least one kernel was running.",
        "DCGM_FI_DEV_GPU_UTIL",
        high=100,
    ),
    dcgm(
        "Memory copies",
        "percent",
        "Share of time in which the memory interface was busy.",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        high=100,
    ),
    dcgm("Memory in use", "mbytes", "Framebuffer in use, in MiB.", "DCGM_FI_DEV_FB_USED"),
    panel(
        "Temperature",
        "celsius",
        "Temperature of the GPU core.",
        ("DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}"),
        threshold("gpu_celsius", "DCGM_FI_DEV_GPU_TEMP"),
        needs="dcgm",
    ),
    dcgm("Power", "watt", "Power consumption of the GPU.", "DCGM_FI_DEV_POWER_USAGE"),
    dcgm("SM clock", "hertz", "Clock of the SMs.", "DCGM_FI_DEV_SM_CLOCK * 1000000"),
    dcgm(
        "Last XID error",
        "short",
        "Number of the last driver error; 0 if none occurred since the driver was loaded.",
        "DCGM_FI_DEV_XID_ERRORS",
        width=24,
        height=5,
        decimals=0,
        thresholds=((1, BAD),),
    ),
)

GPU = Dashboard(
    name="gpu",
    title="GPU",
    about="GPUs of live workers, and metrics of the DCGM exporter.",
    variables=(("worker", "cluster_gpu_info"),),
    rows=(
        Row("Reported by GPU workers", GPUS),
        Row("Reported by the DCGM exporter: docker compose --profile dcgm up -d", DCGM),
    ),
)

REQUESTS = (
    panel(
        "Requests per second",
        "reqps",
        "Requests by route, including health checks.",
        ("sum by (method, route) (rate(cluster_http_requests_total[$__rate_interval]))", "{{method}} {{route}}"),
        stacked=True,
        width=12,
    ),
    panel(
        "By status",
        "reqps",
        "2xx: success. 4xx: client error. 5xx: server error.",
        ("sum by (status) (rate(cluster_http_requests_total[$__rate_interval]))", "{{status}}"),
        stacked=True,
        width=6,
    ),
    panel(
        "Server errors",
        "percentunit",
        "Share of responses with a 5xx status.",
        (
            (
                '(sum(rate(cluster_http_requests_total{status=~"5.."}[$__rate_interval])) or vector(0)) '
                "/ (sum(rate(cluster_http_requests_total[$__rate_interval])) > 0)"
            ),
            "errors",
        ),
        threshold("api_errors_ratio"),
        width=6,
        high=1,
    ),
)

MODELS = (
    panel(
        "Requests to models",
        "reqps",
        "Requests by model and status. 499: the client disconnected. 503: no replica was ready.",
        ("sum by (model, status) (rate(cluster_inference_requests_total[$__rate_interval]))", "{{model}} {{status}}"),
        stacked=True,
        needs="model",
    ),
    panel(
        "Time to the first token",
        "s",
        "Time from the arrival of a streaming request at a coordinator to its first token.",
        *quantiles(
            "sum by (model, le) (rate(cluster_inference_first_token_seconds_bucket[$__rate_interval]))", "{{model}}"
        ),
        needs="model",
    ),
    panel(
        "Duration of a request to a model",
        "s",
        "Time until the last byte of the response.",
        *quantiles(
            "sum by (model, le) (rate(cluster_inference_duration_seconds_bucket[$__rate_interval]))", "{{model}}"
        ),
        needs="model",
    ),
    panel(
        "Tokens per second",
        "short",
        "Tokens of prompts and answers, as counted by the engines.",
        ("sum by (model, what) (rate(cluster_inference_tokens_total[$__rate_interval]))", "{{model}} {{what}}"),
        needs="model",
    ),
    panel(
        "Replicas of services",
        "short",
        "Replicas by state. waiting: no runner has capacity. unhealthy: the replica gets no requests.",
        ("sum by (state) (max by (tenant, service, state) (cluster_service_replicas))", "{{state}}"),
        stacked=True,
        decimals=0,
        needs="model",
    ),
    panel(
        "Missing replicas",
        "short",
        "Desired replicas that are not ready, by service.",
        (
            (
                "max by (tenant, service) (cluster_service_desired_replicas) - on (tenant, service) "
                'max by (tenant, service) (cluster_service_replicas{state="ready"}) > 0'
            ),
            "{{tenant}} {{service}}",
        ),
        decimals=0,
        needs="model",
    ),
)

ANSWER_TIMES = (
    panel(
        "Response time",
        "s",
        "Response time, except for streams and routes that can wait for a job to finish.",
        *quantiles(
            "sum by (le) (rate(cluster_http_request_duration_seconds_bucket"
            '{route!~"/api/results|/api/jobs/[{]job_id[}](/result)?|/api/worker/next|.*/attachments/.*/(in|out)put"}[$__rate_interval]))'
        ),
        threshold("api_seconds"),
    ),
    panel(
        "Response time by route, p95",
        "s",
        "Time within which 19 of 20 responses were sent, including waits for jobs.",
        (
            (
                "histogram_quantile(0.95, sum by (method, route, le) "
                "(rate(cluster_http_request_duration_seconds_bucket[$__rate_interval]))) >= 0"
            ),
            "{{method}} {{route}}",
        ),
    ),
    panel(
        "Response time by route, mean",
        "s",
        "Total response time divided by the number of responses.",
        (
            (
                "sum by (method, route) (rate(cluster_http_request_duration_seconds_sum[$__rate_interval])) / "
                "(sum by (method, route) (rate(cluster_http_request_duration_seconds_count[$__rate_interval])) > 0)"
            ),
            "{{method}} {{route}}",
        ),
    ),
)

COORDINATORS = (
    panel(
        "CPU",
        "percentunit",
        "Share of one CPU, by replica.",
        ('rate(process_cpu_seconds_total{job="coordinator"}[$__rate_interval])', "{{instance}}"),
        width=6,
    ),
    panel(
        "Memory",
        "bytes",
        "Resident memory, by replica.",
        ('process_resident_memory_bytes{job="coordinator"}', "{{instance}}"),
        width=6,
    ),
    panel(
        "Leader",
        "short",
        "1: this replica is the leader, which handles lost leases and old jobs. There is one leader at a time.",
        ("cluster_leader", "{{instance}}"),
        width=6,
        high=1,
        decimals=0,
    ),
    panel(
        "Redis connection",
        "short",
        "0: this replica has no connection to Redis and returns 503.",
        ("cluster_redis_up", "{{instance}}"),
        width=6,
        high=1,
        decimals=0,
    ),
    panel(
        "Version",
        "short",
        "Version of each replica. If two versions remain for long, an update is stuck.",
        ("sum by (version) (cluster_build_info)", "{{version}}"),
        width=12,
        decimals=0,
    ),
    panel(
        "Open files",
        "short",
        "Open files and connections of each replica.",
        ('process_open_fds{job="coordinator"}', "{{instance}}"),
        width=12,
        decimals=0,
    ),
)

API = Dashboard(
    name="api",
    title="API",
    about="Rate, errors and durations of requests, and the state of coordinators.",
    rows=(
        Row("Requests", REQUESTS),
        Row("Times", ANSWER_TIMES),
        Row("Models", MODELS),
        Row("Coordinators", COORDINATORS),
    ),
)

STATE = (
    stat("Up", "short", "1: the exporter is connected to Redis.", "min(redis_up)", decimals=0, high=1),
    stat(
        "Memory",
        "percentunit",
        "Share of the memory limit in use.",
        "max(instance:redis_memory_used:ratio)",
        high=1,
        thresholds=((Settings().alert_redis_memory_ratio, WARN), (0.95, BAD)),
    ),
    stat("Keys", "short", "Number of keys in all databases.", "sum(redis_db_keys)", decimals=0),
    stat("Clients", "short", "Number of open connections.", "sum(redis_connected_clients)", decimals=0),
    stat(
        "Persistence",
        "short",
        "1: the last write and the last rewrite of the append-only file succeeded.",
        "min(redis_aof_last_write_status) * min(redis_aof_last_bgrewrite_status) * min(redis_aof_enabled)",
        decimals=0,
        high=1,
    ),
    stat("Uptime", "s", "Time since the start of Redis.", "min(redis_uptime_in_seconds)"),
)

LOAD = (
    panel(
        "Commands per second",
        "ops",
        "Commands executed for clients and scripts.",
        ("sum(rate(redis_commands_processed_total[$__rate_interval]))", "commands"),
    ),
    panel(
        "Time in commands",
        "percentunit",
        "Share of one CPU used by the five most expensive commands.",
        ("topk(5, sum by (cmd) (rate(redis_commands_duration_seconds_total[$__rate_interval])))", "{{cmd}}"),
    ),
    panel(
        "Mean duration of a command",
        "s",
        "Time in commands divided by the number of commands.",
        (
            (
                "sum(rate(redis_commands_duration_seconds_total[$__rate_interval])) "
                "/ (sum(rate(redis_commands_total[$__rate_interval])) > 0)"
            ),
            "mean",
        ),
    ),
    panel(
        "Clients",
        "short",
        "Open connections, and connections waiting in a blocking command.",
        ("sum(redis_connected_clients)", "open"),
        ("sum(redis_blocked_clients)", "blocked"),
        decimals=0,
    ),
    panel(
        "Network",
        "Bps",
        "Received and sent bytes per second.",
        ("sum(rate(redis_net_input_bytes_total[$__rate_interval]))", "in"),
        ("sum(rate(redis_net_output_bytes_total[$__rate_interval]))", "out"),
    ),
    panel(
        "CPU",
        "percentunit",
        "Share of one CPU, as reported by Redis.",
        ("sum(rate(redis_cpu_user_seconds_total[$__rate_interval]))", "user"),
        ("sum(rate(redis_cpu_sys_seconds_total[$__rate_interval]))", "system"),
        stacked=True,
    ),
)

MEMORY = (
    panel(
        "Memory",
        "bytes",
        "Used memory, resident memory, and the limit (0: none).",
        ("sum(redis_memory_used_bytes)", "used"),
        ("sum(redis_memory_used_rss_bytes)", "resident"),
        ("sum(redis_memory_max_bytes)", "limit"),
    ),
    panel(
        "Append-only file",
        "bytes",
        "Size of the append-only file, which shrinks when Redis rewrites it.",
        ("sum(redis_aof_current_size_bytes)", "size"),
    ),
    panel(
        "Keys",
        "short",
        "Keys in all databases, and keys with an expiry.",
        ("sum(redis_db_keys)", "keys"),
        ("sum(redis_db_keys_expiring)", "expiring"),
        decimals=0,
    ),
    panel(
        "Errors per second",
        "cps",
        "Error replies. NOSCRIPT and ERR occur at every start; OOM and MISCONF are rejected writes.",
        ("sum by (err) (rate(redis_errors_total[$__rate_interval])) or on () vector(0)", "{{err}}"),
    ),
    panel(
        "Evicted keys per second",
        "cps",
        "Evicted keys, which must be 0 because an evicted key is a lost job.",
        ("sum(rate(redis_evicted_keys_total[$__rate_interval]))", "evicted"),
        thresholds=((0.001, BAD),),
    ),
    panel(
        "Unexported audit log",
        "s",
        "Age of the oldest entry that is not in AUDIT_FILE yet.",
        ("max(cluster_audit_unexported_seconds)", "age"),
        thresholds=((5.0, BAD),),
    ),
    panel(
        "Artifact storage",
        "bytes",
        "Bytes under ARTIFACT_URL. Loose files belong to no artifact and are deleted within a day.",
        ("max by (state) (cluster_artifact_bytes)", "{{state}}"),
    ),
    panel(
        "Artifact files",
        "short",
        "Number of distinct files of artifacts.",
        ("max by (state) (cluster_artifact_files)", "{{state}}"),
        decimals=0,
    ),
    panel(
        "Slow commands",
        "short",
        "Entries in the slow log of Redis (over 10 ms each).",
        ("max(redis_slowlog_length)", "entries"),
        decimals=0,
    ),
)

REDIS = Dashboard(
    name="redis",
    title="Redis",
    about="The store of all jobs, leases and results.",
    rows=(
        Row("State", STATE),
        Row("Load", LOAD),
        Row("Memory and persistence", MEMORY),
    ),
)

NGINX = (
    panel(
        "Requests per second",
        "reqps",
        "Requests through nginx: web pages, API and health checks.",
        ("sum(rate(nginx_http_requests_total[$__rate_interval]))", "requests"),
    ),
    panel(
        "Connections",
        "short",
        "Connections that are reading a request, writing a response (including event streams), or idle.",
        ("sum(nginx_connections_reading)", "reading"),
        ("sum(nginx_connections_writing)", "writing"),
        ("sum(nginx_connections_waiting)", "idle"),
        stacked=True,
        decimals=0,
    ),
    panel(
        "Connections accepted and dropped per second",
        "cps",
        "Accepted and dropped connections. Drops occur at the connection limit.",
        ("sum(rate(nginx_connections_accepted[$__rate_interval]))", "accepted"),
        (
            (
                "sum(rate(nginx_connections_accepted[$__rate_interval])) "
                "- sum(rate(nginx_connections_handled[$__rate_interval]))"
            ),
            "dropped",
        ),
    ),
    panel("Up", "short", "1: nginx answers the exporter.", ("min(nginx_up)", "up"), high=1, decimals=0),
)

PAGES = (
    panel("Replicas", "short", "Reachable servers of the web pages.", ('sum(up{job="web"})', "up"), decimals=0),
    panel(
        "Connections",
        "short",
        "Number of open connections, by replica.",
        ('web_connections{state="active"}', "{{instance}}"),
        decimals=0,
    ),
)

WEB = Dashboard(
    name="web",
    title="nginx and web",
    about="The reverse proxy and the servers of the web pages.",
    rows=(
        Row("nginx", NGINX),
        Row("web", PAGES),
    ),
)

DASHBOARDS = (OVERVIEW, JOBS, QUEUES, WORKERS, GPU, API, REDIS, WEB)
