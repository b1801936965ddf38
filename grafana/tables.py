"""Every dashboard, row and panel. After a change: `.venv/bin/python -m grafana`.

Coordinators show the cluster's figures alike: take max over them. What is each replica's own is added up.
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
    """The line beyond which an alert fires, by its setting without ALERT_; `where`: only where there is this figure."""
    return f"alert:{name}:threshold" + f" and on () {where}" * bool(where), "alert beyond"


def quantiles(buckets: str, legend: str = "") -> tuple[tuple[str, str], ...]:
    """p50, p95 and p99 of a histogram's buckets; nothing where nothing was observed."""
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
        "Workers that gave a sign of life in the last five seconds.",
        "cluster:cluster_workers:sum",
        decimals=0,
    ),
    stat("Workers wanted", "short", "CLUSTER_SIZE; 0: not stated.", "max(cluster_configured_workers)", decimals=0),
    stat(
        "Firing alerts",
        "short",
        "Alerts that fire now; see the table below and docs/operations.md.",
        'count(ALERTS{alertstate="firing"}) or vector(0)',
        decimals=0,
        thresholds=((1, BAD),),
    ),
    panel(
        "Lanes busy",
        "percentunit",
        "Share of all lanes that compute. Low while jobs wait: look at Workers.",
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
        "Units/s that counted, by kind and device.",
        ("kind_device:cluster_job_units:rate1m", "{{kind}} on {{device}}"),
        stacked=True,
    ),
    panel(
        "Jobs ended per second",
        "cps",
        "By outcome, over five minutes.",
        ("sum by (outcome) (kind_outcome:cluster_jobs:rate5m)", "{{outcome}}"),
        stacked=True,
    ),
    panel(
        "Jobs that failed",
        "percentunit",
        "Share of the jobs that ended in the last 30 minutes, by kind.",
        ("kind:cluster_job_failures_per_jobs:ratio_rate30m", "{{kind}}"),
        threshold("job_failures_ratio"),
        high=1,
    ),
    panel(
        "Jobs waiting",
        "short",
        "By the device they ask for.",
        ("device:cluster_queue_jobs:sum", "{{device}}"),
        stacked=True,
        decimals=0,
    ),
    panel(
        "Wait, p95",
        "s",
        "Of 20 jobs, 19 began within this time after their submission; by queue.",
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
        "Replicas that answer",
        "short",
        "Targets of Prometheus that are up, by service.",
        ("sum by (job) (up)", "{{job}}"),
        decimals=0,
    ),
    panel(
        "Answers with an error of the server",
        "percentunit",
        "Share of the API's answers with status 5xx.",
        ("cluster:cluster_http_errors_per_requests:ratio_rate5m", "errors"),
        threshold("api_errors_ratio"),
        high=1,
    ),
    panel(
        "Redis memory",
        "percentunit",
        "Share of its limit; at 100 % new jobs are refused.",
        ("instance:redis_memory_used:ratio", "used"),
        threshold("redis_memory_ratio"),
        high=1,
    ),
    panel(
        "Broken entries",
        "short",
        "Jobs and keys of Redis that cannot be read; see the alert BrokenFound.",
        ("max(cluster_broken)", "broken"),
        decimals=0,
        thresholds=((1, BAD),),
    ),
    panel(
        "Firing alerts",
        "short",
        "Each alert's section in docs/operations.md says what to do.",
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
    about="Is it up, is it busy, is anything wrong.",
    rows=(
        Row("Now", NOW),
        Row("Work", WORK),
        Row("Health", HEALTH),
    ),
)

THROUGHPUT = (
    panel(
        "Jobs ended per second",
        "cps",
        "By kind and outcome.",
        ('max by (kind, outcome) (rate(cluster_jobs_total{kind=~"$kind"}[$__rate_interval]))', "{{kind}} {{outcome}}"),
        stacked=True,
    ),
    panel(
        "Units committed per second",
        "short",
        "A unit is a number of collatz, a replica of thread.",
        (
            'max by (kind, device) (rate(cluster_job_units_total{kind=~"$kind"}[$__rate_interval]))',
            "{{kind}} on {{device}}",
        ),
    ),
    panel(
        "Jobs that failed",
        "percentunit",
        "Share of the jobs done or failed in the last 30 minutes.",
        ('kind:cluster_job_failures_per_jobs:ratio_rate30m{kind=~"$kind"}', "{{kind}}"),
        threshold("job_failures_ratio"),
        high=1,
    ),
    panel(
        "Lanes at work by tenant",
        "short",
        "Seconds of lanes per second that jobs of a tenant took.",
        (
            "sum by (tenant) (max by (tenant, device) (rate(cluster_tenant_lane_seconds_total[$__rate_interval])))",
            "{{tenant}}",
        ),
        stacked=True,
    ),
    panel(
        "Jobs done by tenant",
        "cps",
        "Per second.",
        ("max by (tenant) (rate(cluster_tenant_jobs_total[$__rate_interval]))", "{{tenant}}"),
        stacked=True,
    ),
    panel(
        "Jobs kept",
        "short",
        "Jobs that Redis holds, by state; finished ones stay for RESULT_TTL.",
        ("max by (state) (cluster_jobs_kept)", "{{state}}"),
        decimals=0,
    ),
)

JOB_TIMES = (
    panel(
        "Duration",
        "s",
        "From the first lease to the result, of jobs that are done.",
        *quantiles(
            'max by (kind, le) (rate(cluster_job_duration_seconds_bucket{kind=~"$kind"}[$__rate_interval]))', "{{kind}}"
        ),
    ),
    panel(
        "Wait",
        "s",
        "From submission to the first lease, of all jobs.",
        *quantiles("sum by (le) (max by (queue, le) (rate(cluster_queue_wait_seconds_bucket[$__rate_interval])))"),
    ),
    panel(
        "Mean duration",
        "s",
        "Total duration over jobs done. Quantiles are read off wide buckets; this is exact.",
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
        "Leases ended per second",
        "cps",
        "committed: counted. released: given back. failed: the kernel raised. crashed, expired: the lane or its "
        "worker died. stale: came too late and changed nothing.",
        ("max by (outcome) (rate(cluster_leases_total[$__rate_interval]))", "{{outcome}}"),
        width=12,
    ),
    panel(
        "Leases lost",
        "percentunit",
        "Share that died with their lane or worker; their work is done again.",
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
        "Those that are kept, by state, as the leader counted them last.",
        ("max by (state) (cluster_workflows)", "{{state}}"),
        decimals=0,
    ),
    panel(
        "Workflow without a job at work",
        "s",
        "Longest time for which one that goes on has had no job that waits or runs.",
        ("max(cluster_workflow_idle_seconds)", "time"),
        threshold("workflow_seconds"),
    ),
    panel(
        "Age of the count of workflows",
        "s",
        "The leader counts them every ten seconds, and looks at them.",
        ("max(cluster_workflow_census_age_seconds)", "age"),
        threshold("workflow_seconds"),
    ),
    panel(
        "Schedule that is late",
        "s",
        "Time for which one is due and was not run.",
        ("max(cluster_schedule_late_seconds)", "time"),
        thresholds=((5.0, BAD),),
    ),
    panel(
        "Webhooks",
        "cps",
        "Deliveries that ended; dead ones were given up: cluster webhook dead.",
        ("max by (outcome) (rate(cluster_webhook_deliveries_total[$__rate_interval]))", "{{outcome}}"),
        ("max by (outcome) (rate(cluster_webhook_attempts_total[$__rate_interval]))", "attempts that {{outcome}}"),
    ),
    panel(
        "Webhooks that wait",
        "short",
        "Deliveries that are pending.",
        ("max(cluster_webhook_pending)", "pending"),
        decimals=0,
    ),
    panel(
        "Oldest webhook",
        "s",
        "Age of the oldest delivery that is pending.",
        ("max(cluster_webhook_oldest_seconds)", "age"),
    ),
    panel(
        "Webhooks that were given up",
        "short",
        "Within a week, and not tried again: cluster webhook dead.",
        ("max(cluster_webhook_dead)", "dead"),
        decimals=0,
        thresholds=((1.0, BAD),),
    ),
)

JOBS = Dashboard(
    name="jobs",
    title="Jobs",
    about="What is computed, how fast, and how it ends.",
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
        "Jobs that wait for a worker, by queue.",
        ('max by (queue) (cluster_queue_jobs{queue=~"$queue"})', "{{queue}}"),
        stacked=True,
        decimals=0,
    ),
    panel(
        "Age of the first job",
        "s",
        "Time since its submission. A long job that is worked on in turns counts too.",
        ('max by (queue) (cluster_queue_oldest_wait_seconds{queue=~"$queue"})', "{{queue}}"),
    ),
    panel(
        "Work ahead",
        "s",
        "Estimated time one lane would need for what waits or runs.",
        ('max by (queue) (cluster_queue_load_seconds{queue=~"$queue"})', "{{queue}}"),
        stacked=True,
    ),
)

WAIT = (
    panel(
        "Wait by queue",
        "s",
        "Of jobs that began; what still waits is not in it.",
        *quantiles(
            'max by (queue, le) (rate(cluster_queue_wait_seconds_bucket{queue=~"$queue"}[$__rate_interval]))',
            "{{queue}}",
        ),
        width=12,
    ),
    panel(
        "Jobs begun per second",
        "cps",
        "First leases granted, by queue.",
        ('max by (queue) (rate(cluster_queue_wait_seconds_count{queue=~"$queue"}[$__rate_interval]))', "{{queue}}"),
        width=12,
        stacked=True,
    ),
    panel(
        "Waits",
        "s",
        "How many jobs began after which wait; darker is more.",
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
    about="What waits, for how long, and how much work it is.",
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
        "Live workers by device and state, how many are wanted (0: not stated) and needed.",
        ("max by (device, state) (cluster_workers)", "{{device}} {{state}}"),
        ("max(cluster_configured_workers)", "wanted"),
        ("max by (device) (cluster_desired_workers)", "{{device}} needed"),
        decimals=0,
    ),
    panel(
        "Lanes busy",
        "percentunit",
        "Share of the lanes that compute, by device.",
        ("device:cluster_lanes_busy:ratio", "{{device}}"),
        high=1,
    ),
    panel(
        "Speed of a lane",
        "short",
        "Units/s a lane reached last, averaged over workers.",
        ("max by (kind, device) (cluster_worker_rate_units)", "{{kind}} on {{device}}"),
    ),
    panel(
        "Live workers",
        "short",
        "Name, device and host of each.",
        'max by (worker, device, host) (cluster_worker_info{worker=~"$worker"})',
        shape="table",
        width=12,
        low=None,
    ),
    panel(
        "Starts in 15 minutes",
        "short",
        "How often a process started anew; more than one update needs a look.",
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
        "Of all CPUs of the host.",
        ('max by (host) (cluster_host_cpu_ratio{host=~"$host"})', "{{host}}"),
        high=1,
    ),
    panel(
        "Memory in use",
        "percentunit",
        "Of the host's memory, whoever uses it.",
        ('host:cluster_host_memory_used:ratio{host=~"$host"}', "{{host}}"),
        threshold("host_memory_ratio"),
        high=1,
    ),
    panel(
        "Memory",
        "bytes",
        "In use, and what the host has.",
        ('max by (host) (cluster_host_memory_used_bytes{host=~"$host"})', "{{host}} used"),
        ('max by (host) (cluster_host_memory_total_bytes{host=~"$host"})', "{{host}} total"),
    ),
    panel(
        "Received",
        "Bps",
        "Bytes/s that the host received; of containers, what their networks received.",
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
        "Bytes/s that the host sent; of containers, what their networks sent.",
        (
            (
                "sum by (host) (max by (host, network) "
                '(rate(cluster_host_network_transmit_bytes_total{host=~"$host"}[$__rate_interval])))'
            ),
            "{{host}}",
        ),
    ),
    panel(
        "Load over cores",
        "short",
        "Load over a minute; each of its CPUs is busy from the number of CPUs on.",
        ('max by (host) (cluster_host_load1{host=~"$host"})', "{{host}}"),
    ),
    panel(
        "Score",
        "short",
        "How busy the host is: 100 for a load of 1 a core, 3 for each percent of its GPUs.",
        ('max by (host) (cluster_host_score{host=~"$host"})', "{{host}}"),
    ),
    panel(
        "Clock",
        "s",
        "Time by which the host's clock is ahead of Redis' clock.",
        ('max by (host) (cluster_host_clock_offset_seconds{host=~"$host"})', "{{host}}"),
    ),
    panel(
        "Room on disks",
        "bytes",
        "Free on the disks that workers fill, and their sizes.",
        ('max by (host, disk) (cluster_host_disk_free_bytes{host=~"$host"})', "{{host}} {{disk}} free"),
        ('max by (host, disk) (cluster_host_disk_total_bytes{host=~"$host"})', "{{host}} {{disk}} size"),
    ),
    panel(
        "CPUs",
        "short",
        "CPUs of the host; a worker has a lane for each that it may use.",
        ('max by (host) (cluster_host_cpus{host=~"$host"})', "{{host}}"),
        decimals=0,
    ),
)

PROCESSES = (
    panel(
        "Memory of workers",
        "bytes",
        "Resident memory of a worker and its children; shared pages count for each.",
        ("cluster_worker_memory_bytes", "{{job}} {{instance}}"),
        width=12,
    ),
    panel(
        "CPU of workers' parents",
        "percentunit",
        "Of one CPU. The parent leases and commits; its children compute and are not in it.",
        ('rate(process_cpu_seconds_total{job=~"cpu-worker|gpu-worker"}[$__rate_interval])', "{{job}} {{instance}}"),
        width=12,
    ),
)

WORKERS = Dashboard(
    name="workers",
    title="Workers and hosts",
    about="Who computes, how busy they are, and what their hosts have left.",
    variables=(("worker", "cluster_worker_info"), ("host", "cluster_worker_info")),
    rows=(
        Row("Fleet", FLEET),
        Row("Hosts, as their workers see them", HOSTS),
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
        "Share of time in which at least one kernel ran.",
        "cluster_gpu_utilization_ratio",
        high=1,
    ),
    gpu(
        "SMs active",
        "percentunit",
        "Share of cycles in which an SM had work; the truer figure of the two.",
        "cluster_gpu_sm_active_ratio",
        high=1,
    ),
    panel(
        "Memory in use",
        "percentunit",
        "Of the GPU's memory, whoever uses it.",
        ('worker_gpu:cluster_gpu_memory_used:ratio{worker=~"$worker"}', "{{worker}} {{gpu}}"),
        threshold("gpu_memory_ratio", "worker_gpu:cluster_gpu_memory_used:ratio"),
        high=1,
        needs="gpu",
    ),
    panel(
        "Memory",
        "bytes",
        "In use, and what the GPU has.",
        ('max by (worker, gpu) (cluster_gpu_memory_used_bytes{worker=~"$worker"})', "{{worker}} {{gpu}} used"),
        ('max by (worker, gpu) (cluster_gpu_memory_total_bytes{worker=~"$worker"})', "{{worker}} {{gpu}} total"),
        needs="gpu",
    ),
    panel(
        "Temperature",
        "celsius",
        "Of the core.",
        ('max by (worker, gpu) (cluster_gpu_temperature_celsius{worker=~"$worker"})', "{{worker}} {{gpu}}"),
        threshold("gpu_celsius", "cluster_gpu_temperature_celsius"),
        needs="gpu",
    ),
    gpu("Power", "watt", "What the GPU draws.", "cluster_gpu_power_watts"),
    panel(
        "Energy per hour",
        "joule",
        "What the GPU used in the last hour.",
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
        "Bytes/s over PCIe, seen from the GPU.",
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
        "Slowed down",
        "short",
        "Red while the reason holds. A power cap is normal at full load; heat is not.",
        ('max by (worker, gpu, reason) (cluster_gpu_throttled{worker=~"$worker"})', "{{worker}} {{gpu}} {{reason}}"),
        shape="state-timeline",
        thresholds=((1, BAD),),
        high=1,
        needs="gpu",
    ),
    panel(
        "GPUs",
        "short",
        "Model, index and UUID of each.",
        'max by (worker, gpu, index, name) (cluster_gpu_info{worker=~"$worker"})',
        shape="table",
        width=24,
        height=5,
        low=None,
        needs="gpu",
    ),
)

DCGM = (
    dcgm("Utilization", "percent", "Share of time in which at least one kernel ran.", "DCGM_FI_DEV_GPU_UTIL", high=100),
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
        "Of the core.",
        ("DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}"),
        threshold("gpu_celsius", "DCGM_FI_DEV_GPU_TEMP"),
        needs="dcgm",
    ),
    dcgm("Power", "watt", "What the GPU draws.", "DCGM_FI_DEV_POWER_USAGE"),
    dcgm("SM clock", "hertz", "Clock of the SMs.", "DCGM_FI_DEV_SM_CLOCK * 1000000"),
    dcgm(
        "Last XID error",
        "short",
        "Number of the last error of the driver; 0: none since it was loaded.",
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
    about="GPUs of live workers, and below those that the DCGM exporter sees.",
    variables=(("worker", "cluster_gpu_info"),),
    rows=(
        Row("As GPU workers report", GPUS),
        Row("As the DCGM exporter reports: docker compose --profile dcgm up -d", DCGM),
    ),
)

REQUESTS = (
    panel(
        "Requests per second",
        "reqps",
        "By route; health checks are in it.",
        ("sum by (method, route) (rate(cluster_http_requests_total[$__rate_interval]))", "{{method}} {{route}}"),
        stacked=True,
        width=12,
    ),
    panel(
        "By status",
        "reqps",
        "2xx: fine. 4xx: the client's mistake. 5xx: ours.",
        ("sum by (status) (rate(cluster_http_requests_total[$__rate_interval]))", "{{status}}"),
        stacked=True,
        width=6,
    ),
    panel(
        "Errors of the server",
        "percentunit",
        "Share of the answers with status 5xx.",
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
        "By model and status. 499: the client left. 503: no replica was ready.",
        ("sum by (model, status) (rate(cluster_inference_requests_total[$__rate_interval]))", "{{model}} {{status}}"),
        stacked=True,
        needs="model",
    ),
    panel(
        "Time to the first token",
        "s",
        "Of requests that stream, from their arrival at a coordinator.",
        *quantiles(
            "sum by (model, le) (rate(cluster_inference_first_token_seconds_bucket[$__rate_interval]))", "{{model}}"
        ),
        needs="model",
    ),
    panel(
        "Time of a request to a model",
        "s",
        "To its last byte.",
        *quantiles(
            "sum by (model, le) (rate(cluster_inference_duration_seconds_bucket[$__rate_interval]))", "{{model}}"
        ),
        needs="model",
    ),
    panel(
        "Tokens per second",
        "short",
        "Of prompts and of answers, as the engines count them.",
        ("sum by (model, what) (rate(cluster_inference_tokens_total[$__rate_interval]))", "{{model}} {{what}}"),
        needs="model",
    ),
    panel(
        "Replicas of services",
        "short",
        "By state. waiting: no runner has room. unhealthy: it gets no requests.",
        ("sum by (state) (max by (tenant, service, state) (cluster_service_replicas))", "{{state}}"),
        stacked=True,
        decimals=0,
        needs="model",
    ),
    panel(
        "Replicas that are not ready",
        "short",
        "By service: how many it is to have beyond those that are ready.",
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
        "Time to answer",
        "s",
        "Without streams and the routes that may wait for a job's end.",
        *quantiles(
            "sum by (le) (rate(cluster_http_request_duration_seconds_bucket"
            '{route!~"/api/results|/api/jobs/[{]job_id[}](/result)?|/api/worker/next|.*/attachments/.*/(in|out)put"}[$__rate_interval]))'
        ),
        threshold("api_seconds"),
    ),
    panel(
        "Time to answer by route, p95",
        "s",
        "19 of 20 answers came within this time; waits for a job are in it.",
        (
            (
                "histogram_quantile(0.95, sum by (method, route, le) "
                "(rate(cluster_http_request_duration_seconds_bucket[$__rate_interval]))) >= 0"
            ),
            "{{method}} {{route}}",
        ),
    ),
    panel(
        "Time to answer by route, mean",
        "s",
        "Total time over answers.",
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
        "Of one CPU, by replica.",
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
        "Leads",
        "short",
        "1: this replica looks after lost leases and old jobs. One leads at a time.",
        ("cluster_leader", "{{instance}}"),
        width=6,
        high=1,
        decimals=0,
    ),
    panel(
        "Reaches Redis",
        "short",
        "0: this replica answers 503.",
        ("cluster_redis_up", "{{instance}}"),
        width=6,
        high=1,
        decimals=0,
    ),
    panel(
        "Version",
        "short",
        "What each replica runs; two versions for long: an update is stuck.",
        ("sum by (version) (cluster_build_info)", "{{version}}"),
        width=12,
        decimals=0,
    ),
    panel(
        "Open files",
        "short",
        "Files and connections of each replica.",
        ('process_open_fds{job="coordinator"}', "{{instance}}"),
        width=12,
        decimals=0,
    ),
)

API = Dashboard(
    name="api",
    title="API",
    about="Requests to the coordinators: rate, errors, times; and the coordinators themselves.",
    rows=(
        Row("Requests", REQUESTS),
        Row("Times", ANSWER_TIMES),
        Row("Models", MODELS),
        Row("Coordinators", COORDINATORS),
    ),
)

STATE = (
    stat("Up", "short", "1: its exporter reaches it.", "min(redis_up)", decimals=0, high=1),
    stat(
        "Memory",
        "percentunit",
        "Share of its limit.",
        "max(instance:redis_memory_used:ratio)",
        high=1,
        thresholds=((Settings().alert_redis_memory_ratio, WARN), (0.95, BAD)),
    ),
    stat("Keys", "short", "Keys in all databases.", "sum(redis_db_keys)", decimals=0),
    stat("Clients", "short", "Open connections.", "sum(redis_connected_clients)", decimals=0),
    stat(
        "Log in order",
        "short",
        "1: the last write to the log and its last rewrite succeeded.",
        "min(redis_aof_last_write_status) * min(redis_aof_last_bgrewrite_status) * min(redis_aof_enabled)",
        decimals=0,
        high=1,
    ),
    stat("Uptime", "s", "Since its start.", "min(redis_uptime_in_seconds)"),
)

LOAD = (
    panel(
        "Commands per second",
        "ops",
        "Commands that clients or scripts ran.",
        ("sum(rate(redis_commands_processed_total[$__rate_interval]))", "commands"),
    ),
    panel(
        "Time in commands",
        "percentunit",
        "Share of one CPU that the five most costly commands take.",
        ("topk(5, sum by (cmd) (rate(redis_commands_duration_seconds_total[$__rate_interval])))", "{{cmd}}"),
    ),
    panel(
        "Mean time of a command",
        "s",
        "Time in commands over commands.",
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
        "Open connections, and those that wait in a blocking command.",
        ("sum(redis_connected_clients)", "open"),
        ("sum(redis_blocked_clients)", "blocked"),
        decimals=0,
    ),
    panel(
        "Network",
        "Bps",
        "Bytes/s in and out.",
        ("sum(rate(redis_net_input_bytes_total[$__rate_interval]))", "in"),
        ("sum(rate(redis_net_output_bytes_total[$__rate_interval]))", "out"),
    ),
    panel(
        "CPU",
        "percentunit",
        "Of one CPU, by Redis' own count.",
        ("sum(rate(redis_cpu_user_seconds_total[$__rate_interval]))", "user"),
        ("sum(rate(redis_cpu_sys_seconds_total[$__rate_interval]))", "system"),
        stacked=True,
    ),
)

MEMORY = (
    panel(
        "Memory",
        "bytes",
        "In use, resident, and the limit (0: none).",
        ("sum(redis_memory_used_bytes)", "used"),
        ("sum(redis_memory_used_rss_bytes)", "resident"),
        ("sum(redis_memory_max_bytes)", "limit"),
    ),
    panel(
        "Log",
        "bytes",
        "Size of the append-only file; it shrinks when Redis rewrites it.",
        ("sum(redis_aof_current_size_bytes)", "size"),
    ),
    panel(
        "Keys",
        "short",
        "In all databases, and those with an expiry.",
        ("sum(redis_db_keys)", "keys"),
        ("sum(redis_db_keys_expiring)", "expiring"),
        decimals=0,
    ),
    panel(
        "Errors per second",
        "cps",
        "Answers that were errors. NOSCRIPT and ERR come with every start; OOM and MISCONF are refused writes.",
        ("sum by (err) (rate(redis_errors_total[$__rate_interval])) or on () vector(0)", "{{err}}"),
    ),
    panel(
        "Evicted keys per second",
        "cps",
        "Must be 0: an evicted key is a lost job.",
        ("sum(rate(redis_evicted_keys_total[$__rate_interval]))", "evicted"),
        thresholds=((0.001, BAD),),
    ),
    panel(
        "Audit log not in its file",
        "s",
        "Age of the oldest entry that AUDIT_FILE lacks.",
        ("max(cluster_audit_unexported_seconds)", "age"),
        thresholds=((5.0, BAD),),
    ),
    panel(
        "Files of artifacts",
        "bytes",
        "Bytes under ARTIFACT_URL; loose ones are of files that no artifact has, which go within a day.",
        ("max by (state) (cluster_artifact_bytes)", "{{state}}"),
    ),
    panel(
        "Number of files",
        "short",
        "Files of artifacts, each once.",
        ("max by (state) (cluster_artifact_files)", "{{state}}"),
        decimals=0,
    ),
    panel(
        "Slow commands",
        "short",
        "Entries in Redis' slow log (over 10 ms each).",
        ("max(redis_slowlog_length)", "entries"),
        decimals=0,
    ),
)

REDIS = Dashboard(
    name="redis",
    title="Redis",
    about="The one place that keeps jobs, leases and results.",
    rows=(
        Row("State", STATE),
        Row("Load", LOAD),
        Row("Memory and log", MEMORY),
    ),
)

NGINX = (
    panel(
        "Requests per second",
        "reqps",
        "Requests through nginx: pages, API, its own checks.",
        ("sum(rate(nginx_http_requests_total[$__rate_interval]))", "requests"),
    ),
    panel(
        "Connections",
        "short",
        "Reading a request, writing an answer (streams of events too), idle.",
        ("sum(nginx_connections_reading)", "reading"),
        ("sum(nginx_connections_writing)", "writing"),
        ("sum(nginx_connections_waiting)", "idle"),
        stacked=True,
        decimals=0,
    ),
    panel(
        "Connections accepted and dropped per second",
        "cps",
        "Dropped: it is at its limit of connections.",
        ("sum(rate(nginx_connections_accepted[$__rate_interval]))", "accepted"),
        (
            (
                "sum(rate(nginx_connections_accepted[$__rate_interval])) "
                "- sum(rate(nginx_connections_handled[$__rate_interval]))"
            ),
            "dropped",
        ),
    ),
    panel("Up", "short", "1: nginx answers its exporter.", ("min(nginx_up)", "up"), high=1, decimals=0),
)

PAGES = (
    panel("Replicas", "short", "Servers of the pages that answer.", ('sum(up{job="web"})', "up"), decimals=0),
    panel(
        "Connections",
        "short",
        "Open connections, by replica.",
        ('web_connections{state="active"}', "{{instance}}"),
        decimals=0,
    ),
)

WEB = Dashboard(
    name="web",
    title="nginx and web",
    about="The front door, and the servers of the pages.",
    rows=(
        Row("nginx", NGINX),
        Row("web", PAGES),
    ),
)

DASHBOARDS = (OVERVIEW, JOBS, QUEUES, WORKERS, GPU, API, REDIS, WEB)
