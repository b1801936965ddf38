"""Names of all Redis keys. Among Python modules, only this one contains key names.

The functions in `lua/` contain the names, too. A test compares both with the table in `docs/lease-protocol.md`. Times
in keys are milliseconds of Redis time.
"""

from __future__ import annotations

PREFIX = "ct:"


class Family:
    """Group of keys that contain IDs. Call it with the IDs to get the name of a key."""

    def __init__(self, pattern: str) -> None:
        #: Key name with a %s in place of each ID.
        self.pattern = pattern

    def __call__(self, *ids: str | int) -> str:
        return self.pattern % ids


#: Sorted set of all jobs, scored by submission number.
JOBS = f"{PREFIX}jobs"
#: Sorted set of jobs that the leader checks again, scored by the time of this check.
RECHECK = f"{PREFIX}recheck"
#: Sorted set of running jobs with a timeout, scored by their deadline.
DEADLINES = f"{PREFIX}deadlines"
#: Sorted set of jobs that the leader deletes, scored by the time of deletion.
EXPIRY = f"{PREFIX}expiry"
#: Set of kind versions whose jobs wait for a worker that supports them, as queue:kind|version.
UNSUPPORTED = f"{PREFIX}unsupported"
#: Hash with the time of the last cleanup, and the time before which no program's lease is reclaimed.
GRACE = f"{PREFIX}grace"
#: Set of kind versions whose programs wait for a suitable runner, as queue:kind|version.
#: If the programs have requirements, `|` and the requirements follow.
UNSUPPORTED_PROGRAMS = f"{PREFIX}unsupported_programs"
#: Set of jobs that are service replicas and wait for a runner.
WAITING_REPLICAS = f"{PREFIX}waiting_replicas"
#: Sorted set of programs without a suitable runner, scored by the time since which no runner has been suitable.
UNSCHEDULABLE = f"{PREFIX}unschedulable"
#: Hash with the runner that is reserved for each job: job -> runner|until|leases|all|looked.
RESERVED = f"{PREFIX}reserved"
#: Sorted set of job requirements, scored by the number of unfinished jobs that have them.
SHAPES = f"{PREFIX}shapes"
#: Sorted set of program units whose output users follow (tenant/job|unit), scored by the end of following.
FOLLOWED = f"{PREFIX}followed"
#: Sorted set of attachments (tenant/job|unit|attachment), scored by the time at which they end without user requests.
ATTACHMENTS = f"{PREFIX}attachments"
#: Short stream of attachments that changed. Each entry makes coordinators read an attachment again.
ATTACHMENT_WAKES = f"{PREFIX}attachment_wakes"
#: Sorted set of registered tenants, scored by registration time.
TENANTS = f"{PREFIX}tenants"
#: Hash with the number of removed tenants of each tenant name.
GENERATIONS = f"{PREFIX}generations"
#: Hash of tenants: tenant -> weight|max_lanes|max_jobs, and tenant|caps -> other limits.
SHARES = f"{PREFIX}shares"
#: Set of tenant:kind whose jobs wait until the next day because of a daily limit.
DEFERRED = f"{PREFIX}deferred"
#: Hash with the number of stored bytes of each tenant that has a limit on them.
STORED = f"{PREFIX}stored"
#: Set of tenants that use all of their lanes.
#: A member gpu:tenant means that the tenant has used up today's GPU seconds.
CAPPED = f"{PREFIX}capped"
#: Hash of queues whose first job has waited for too long: queue -> start of the wait.
AGED = f"{PREFIX}aged"
#: Hash with the number of requests for work by each worker while aged jobs exist.
AGING = f"{PREFIX}aging"
#: Counter for submission numbers and queue positions.
SEQUENCE = f"{PREFIX}seq"
#: Sorted set of workers with a slot, scored by the expiry of the slot.
SLOTS = f"{PREFIX}slots"
#: Hash with the job in each worker's slot: worker -> job|lanes.
SLOT_JOBS = f"{PREFIX}slotjob"
#: Sorted set of live workers, scored by the time at which they count as dead.
WORKERS = f"{PREFIX}workers"
#: Sorted set of workers that were alive during the last day, scored by their last heartbeat.
NODES = f"{PREFIX}nodes"
#: Counter of changes to draining, which modify a worker's record between heartbeats.
DRAINS = f"{PREFIX}drains"
#: Stream of the events of all jobs and workers.
EVENTS = f"{PREFIX}events"
#: Name of the coordinator that is the leader and runs the periodic cleanup.
LEADER = f"{PREFIX}leader"
#: Set of tenants that have recorded usage.
USAGES = f"{PREFIX}usages"
#: Stream of the audit log. Entry N has the stream ID N-0 and contains its hash and its text.
AUDIT_LOG = f"{PREFIX}auditlog"
#: Hash with number and hash of three audit log entries: the last one, the last dropped one, and the last exported one.
AUDIT_HEAD = f"{PREFIX}audithead"
#: Hash with the queued and running work of each queue, in milliseconds of a single lane.
LOAD = f"{PREFIX}load"
#: Hash with the ratio of measured speed to the kind's estimate, keyed by kind|mode|device.
PACE = f"{PREFIX}pace"
#: Hash with the number of committed units, keyed by kind|device.
UNITS = f"{PREFIX}units"
#: Hash with the number of ended leases, keyed by outcome.
OUTCOMES = f"{PREFIX}outcomes"
#: Hash with the number of submitted jobs, keyed by kind.
SUBMITTED = f"{PREFIX}submitted"
#: Hash with the number of finished jobs, keyed by kind|state.
ENDED = f"{PREFIX}ended"
#: Hash with histograms of wait times in seconds, keyed by queue|bound.
WAITS = f"{PREFIX}waits"
#: Hash with histograms of job durations in seconds, keyed by kind|bound.
DURATIONS = f"{PREFIX}durations"
#: Hash with the latest span (time of work on a lease) of each lane.
SPAN = f"{PREFIX}span"
#: Stream of the earlier spans of all lanes.
SPANS = f"{PREFIX}spans"
#: List of measurements of the last hour, with one block per minute.
HISTORY = f"{PREFIX}history"
#: List of the measurements of the current minute.
HISTORY_NOW = f"{PREFIX}history:now"
#: Hash of alerts as JSON, keyed by alert ID.
ALERTS = f"{PREFIX}alerts"
#: State of autoscaling as JSON, including the desired number of workers for each type of device.
DESIRED = f"{PREFIX}desired"
#: Hash with the number and total size of files, keyed by tenant|stored or loose|files or bytes.
FILE_SUMS = f"{PREFIX}filesums"
#: Sorted set of files that belong to no artifact (tenant/sha256), scored by the time until which they are kept.
LOOSE = f"{PREFIX}loose"
#: Sorted set of partly uploaded files (tenant/sha256), scored by the time until which their parts are kept.
UPLOADS = f"{PREFIX}uploads"
#: Sorted set of storage objects that belong to no file (tenant/object), scored by the time of deletion.
UNOWNED = f"{PREFIX}unowned"
#: Set of storage objects that are being deleted (tenant/object).
DOOMED = f"{PREFIX}doomed"
#: Sorted set of artifacts without holders (tenant/artifact), scored by the time of their last holder's removal.
UNHELD = f"{PREFIX}unheld"
#: ID of the artifact store, as in its marker file. Empty until the marker file is written.
FILE_STORE = f"{PREFIX}filestore"
#: Set of jobs and keys with unreadable data: job IDs and key names.
BROKEN = f"{PREFIX}broken"
#: Name of a key with invalid data. While this key is set, Redis accepts no jobs.
DAMAGED = f"{PREFIX}damaged"
#: Key that a call writes before WAITAOF, so that WAITAOF waits for a write of this connection.
DURABLE = f"{PREFIX}durable"
#: Text that identifies the cause of the last rewrite of the append-only file.
REWRITTEN = f"{PREFIX}rewritten"
#: Sorted set of all API tokens, scored by creation time.
TOKENS = f"{PREFIX}tokens"
#: Text that changes whenever an API token or a browser session is added or removed.
TOKENS_VERSION = f"{PREFIX}tokenset"
#: Sorted set of browser sessions, scored by the time at which they expire.
SESSIONS = f"{PREFIX}sessions"
#: Sorted set of webhook receivers (tenant|origin of the URL), scored by the time of the next delivery.
DELIVERIES = f"{PREFIX}deliveries"
#: Hash with the number of webhook attempts and deliveries, keyed by outcome.
WEBHOOKS = f"{PREFIX}webhooks"
#: Sorted set of schedules, scored by the time at which the leader processes them next.
SCHEDULES = f"{PREFIX}schedules"
#: Set of all services, including services that are being deleted.
SERVICES = f"{PREFIX}services"
#: Sorted set of function libraries, scored by the last time at which a coordinator used them.
LIBRARIES = f"{PREFIX}libraries"
#: Data format of all keys, and the version of the coordinator that loaded its functions last, such as `1 0.1.0`.
RELEASE = f"{PREFIX}release"

#: Sorted set of ended or retried jobs whose dependent jobs must be notified, scored by the time of this change.
WAKING = f"{PREFIX}waking"
#: Set of workflows that the leader processes next.
WORKFLOWS_DUE = f"{PREFIX}workflowsdue"

#: Set of workflows that the leader is processing.
WORKFLOWS_TAKEN = f"{PREFIX}workflowstaken"
#: Hash with the number of workflows in each state, the start of the longest idle time, and the time of counting.
WORKFLOW_FIGURES = f"{PREFIX}workflowfigures"

#: Sorted set of all workflows, scored by creation time.
WORKFLOWS = f"{PREFIX}workflows"
#: Set of unfinished workflows.
WORKFLOWS_LIVE = f"{PREFIX}workflowslive"
#: Sorted set of workflows, scored by the time at which the leader deletes them.
WORKFLOW_EXPIRY = f"{PREFIX}workflowexpiry"
#: Hash with the size in bytes of each tenant's workflow documents and records.
WORKFLOW_BYTES = f"{PREFIX}workflowbytes"

#: Hash of active profiles, as reported to workers: profile -> state|hz|until|hosts.
PROFILING = f"{PREFIX}profiling"
#: Hash of parts of recordings that the leader has not stored yet: profile|recording|number -> bytes.
PROFILE_PARTS = f"{PREFIX}profile_parts"

#: Pattern that matches all keys of the library RQ.
OF_RQ = "rq:*"
#: Set of queue keys that RQ maintains.
RQ_QUEUES = "rq:queues"

#: Hash of a job's fields.
job = Family(f"{PREFIX}job:%s")


def job_id(name: bytes) -> bytes | None:
    """Return the job ID in the key of a job's hash, or None for any other key."""
    return name[len(job("")) :] if name.startswith(job("").encode()) and name.count(b":") == 2 else None


#: Hash of a job's leases: token -> lo:hi:upto:expiries:errors:granted:lane.
job_lease = Family(f"{PREFIX}job:%s:lease")
#: Sorted set of the tokens of a job's leases, scored by the expiry of the lease.
job_leases = Family(f"{PREFIX}job:%s:leases")
#: List of a job's unit ranges that must be leased again.
job_free = Family(f"{PREFIX}job:%s:free")
#: Sorted set of a job's unit ranges after kernel errors, scored by the earliest time of their retry.
job_retry = Family(f"{PREFIX}job:%s:retry")
#: List of a job's unit ranges that failed permanently.
job_dead = Family(f"{PREFIX}job:%s:dead")
#: List of a job's committed partial results that are not merged yet.
job_parts = Family(f"{PREFIX}job:%s:parts")
#: Merged partial result of a job.
job_accumulator = Family(f"{PREFIX}job:%s:acc")
#: Hash of a job's unfinished dependencies: parent -> ok or any.
job_needs = Family(f"{PREFIX}job:%s:needs")
#: Sorted set of blocked jobs that depend on a job. The score is 0 for jobs that wait for this job.
job_children = Family(f"{PREFIX}job:%s:children")
#: Set of jobs that were skipped because this job failed or was cancelled.
job_skips = Family(f"{PREFIX}job:%s:skips")
#: Hash of the artifacts with log and output files of a job's units, keyed by unit.
job_files = Family(f"{PREFIX}job:%s:files")
#: Hash with the number of a job's units that refer to an artifact, keyed by artifact.
job_kept = Family(f"{PREFIX}job:%s:kept")
#: Result of a job as JSON.
job_result = Family(f"{PREFIX}job:%s:result")
#: Set of a runner's leases for programs, as job|token.
leased = Family(f"{PREFIX}leased:%s")
#: Hash of failure records as JSON, keyed by unit. A program has up to a thousand failure records.
job_failures = Family(f"{PREFIX}job:%s:failures")
#: Stream of the events of one job.
job_events = Family(f"{PREFIX}job:%s:ev")
#: Stream of the live output of a program that users follow.
output = Family(f"{PREFIX}output:%s")
#: Hash with the size in bytes of an output stream, and the number of bytes that it currently accepts.
outputs = Family(f"{PREFIX}outputs:%s")
#: Hash of an attached shell: owner, unit, state, and the offsets of both directions.
attachment = Family(f"{PREFIX}attachment:%s")
#: Stream of a shell's unread input. The ID of an entry is the byte offset after the entry.
attachment_input = Family(f"{PREFIX}attachment_input:%s")
#: Stream of a shell's unread output. The ID of an entry is the byte offset after the entry.
attachment_output = Family(f"{PREFIX}attachment_output:%s")
#: Sorted set of a queue's pending jobs, scored by queue position.
pending = Family(f"{PREFIX}pending:%s")
#: Sorted set of a tenant's pending jobs in one queue, scored by queue position.
tenant_pending = Family(f"{PREFIX}tenant_pending:%s:%s")
#: Sorted set of a tenant's jobs in slots of workers, scored by the number of slots.
held = Family(f"{PREFIX}held:%s:%s")
#: Set of tenants whose jobs of one queue can be in slots of workers.
holding = Family(f"{PREFIX}holding:%s")
#: Sorted set of tenants with pending jobs in a queue, scored by virtual time (used share).
order = Family(f"{PREFIX}order:%s")
#: Hash with the virtual time at which each tenant's latest work of a priority ends.
finish = Family(f"{PREFIX}finish:%s")
#: Virtual time of a priority, which measures the work of all tenants for fair sharing.
virtual = Family(f"{PREFIX}virtual:%s")
#: Sorted set of job requirements, scored by the number of a tenant's unfinished jobs that have them.
tenant_shapes = Family(f"{PREFIX}shapes:%s")
#: Sorted set of a tenant's queued and running jobs, without its backlog, scored by submission number.
admitted = Family(f"{PREFIX}admitted:%s")
#: Sorted set of queued jobs that wait for a limit of their tenant, scored by queue position.
backlog = Family(f"{PREFIX}backlog:%s")
#: Sorted set of a tenant's jobs that wait for other jobs, scored by submission number.
blocked = Family(f"{PREFIX}blocked:%s")
#: Sorted set of a tenant's jobs that wait for the next day because of a daily limit, scored by queue position.
deferred = Family(f"{PREFIX}deferred:%s:%s")
#: Hash with the number of stored bytes of each job, for a tenant with a limit on them.
stored = Family(f"{PREFIX}stored:%s")
#: Field of the hash SHARES that contains a tenant's optional limits.
caps = Family("%s|caps")
#: Sorted set of the lease tokens of a tenant's jobs, scored by the expiry of the lease.
lanes = Family(f"{PREFIX}lanes:%s")
#: Sorted set of jobs that wait for a worker with their kind's version, scored by queue position.
unsupported = Family(f"{PREFIX}unsupported:%s:%s|%s")
#: Sorted set of the jobs that wait for a worker that supports one kind version, scored by queue position.
unsupported_member = Family(f"{UNSUPPORTED}:%s")
#: Sorted set of the jobs in a state, scored by submission number.
in_state = Family(f"{PREFIX}in:%s")
#: Sorted set of live workers of a device, scored by the time at which they count as dead.
workers_of = Family(f"{PREFIX}workers:%s")
#: Hash with a worker's record, as sent in its heartbeats.
worker = Family(f"{PREFIX}worker:%s")
#: Pub/sub channel with the IDs of cancelled or paused jobs for which a worker has leases. It is not a key.
stops = Family(f"{PREFIX}stops:%s")
#: Name of the worker that has claimed this GPU.
gpu = Family(f"{PREFIX}gpu:%s")
#: Set of GPUs that a runner has claimed.
claimed = Family(f"{PREFIX}claimed:%s")
#: Sorted set of the priorities of work that waits for a GPU, scored by expiry.
#: The key gpu:UUID:wanted is for programs that wait for the GPU.
gpu_wish = Family(f"{PREFIX}gpu:%s:%s")
#: Hash with a tenant's usage, keyed by day|name. Days are counted from 1970.
#: The day `before` contains the usage of all earlier days.
usage = Family(f"{PREFIX}usage:%s")
#: ID of the job that was submitted with an idempotency key, and the digest of the request (job|digest).
idempotency = Family(f"{PREFIX}idem:%s:%s")
#: Hash of one API token.
token = Family(f"{PREFIX}token:%s")
#: Hash of one browser session.
session = Family(f"{PREFIX}session:%s")
#: Sorted set of the browser sessions of an API token, scored by the time at which they expire.
logins = Family(f"{PREFIX}logins:%s")
#: Hash with the encryption key ID and the time of the last change of a tenant's secrets: name -> key|changed.
secrets = Family(f"{PREFIX}secrets:%s")
#: Hash with the encrypted values of a tenant's secrets: name -> key.sealed.
secret = Family(f"{PREFIX}secret:%s")
#: Hash of one schedule.
schedule = Family(f"{PREFIX}schedule:%s")
#: Hash of a tenant's schedules: name -> schedule ID.
schedules_of = Family(f"{PREFIX}schedules:%s")
#: Hash of one service.
service = Family(f"{PREFIX}service:%s")
#: Hash of a tenant's services: name -> service ID.
services_of = Family(f"{PREFIX}services:%s")
#: Hash of a service's replicas: number -> generation|since|stopping.
service_replicas = Family(f"{PREFIX}servicereplicas:%s")
#: Hash with the number of requests for a service at each coordinator, including waiting requests.
service_asked = Family(f"{PREFIX}serviceasked:%s")
#: Hash with the number and durations of requests to a service, in slots of ten seconds: slot|name -> count.
service_figures = Family(f"{PREFIX}servicefigures:%s")
#: Hash with a runner's report about a replica: state, address and key.
replica = Family(f"{PREFIX}replica:%s")
#: Hash of the coordinator to which a runner has a tunnel: its URL for other coordinators, its key and its host.
tunnel = Family(f"{PREFIX}tunnel:%s")
#: Hash with the number of requests that each coordinator is forwarding to a replica.
replica_busy = Family(f"{PREFIX}replicabusy:%s")
#: Number of the last counted batch of model requests from one coordinator. Kept for an hour.
inference_counted = Family(f"{PREFIX}inferencecounted:%s")
#: Hash of one webhook delivery.
delivery = Family(f"{PREFIX}delivery:%s")
#: Sorted set of a tenant's deliveries to one origin (scheme, host and port), scored by the next attempt.
outbox = Family(f"{PREFIX}outbox:%s")
#: Sorted set of a tenant's deliveries in one state, scored by the time of the change.
deliveries_of = Family(f"{PREFIX}deliveries:%s:%s")
#: Hash of a tenant's files: sha256 -> size:references:objects.
files = Family(f"{PREFIX}files:%s")
#: Hash of a partly uploaded file, with its size and its uploaded parts: number -> object.
parts = Family(f"{PREFIX}parts:%s:%s")
#: Hash of an artifact: size in bytes, number of files, creation time and manifest.
artifact = Family(f"{PREFIX}artifact:%s:%s")
#: Sorted set of a tenant's artifacts with holders, scored by creation time.
artifacts = Family(f"{PREFIX}artifacts:%s")
#: Set of the objects that keep an artifact: kept, name:NAME or job:ID.
holders = Family(f"{PREFIX}holders:%s:%s")
#: Hash of a tenant's artifact names: name -> artifact ID.
names = Family(f"{PREFIX}names:%s")
#: Hash of one workflow.
workflow = Family(f"{PREFIX}workflow:%s")
#: Actions of a workflow, as zlib-compressed JSON.
workflow_document = Family(f"{PREFIX}workflowdocument:%s")
#: Hash of the jobs of a workflow's actions, keyed by action, or by action/number for items.
workflow_jobs = Family(f"{PREFIX}workflowjobs:%s")
#: Hash of the outcomes of actions without a job, as JSON, keyed like the jobs of actions.
workflow_records = Family(f"{PREFIX}workflowrecords:%s")
#: Set of a workflow's actions whose jobs must be retried.
workflow_retries = Family(f"{PREFIX}workflowretries:%s")
#: Sorted set of a tenant's workflows, scored by creation time.
workflows_of = Family(f"{PREFIX}workflows:%s")
#: Hash of one profile.
profile = Family(f"{PREFIX}profile:%s")
#: Hash of a tenant's profiles: name -> profile ID.
profiles_of = Family(f"{PREFIX}profiles:%s")
#: Hash with the worker that records each device of a profile: device -> worker|until.
profile_claims = Family(f"{PREFIX}profile_claims:%s")
#: Hash of a profile's recordings as JSON. Each recording has several fields, such as its worker and last report.
profile_recordings = Family(f"{PREFIX}profile_recordings:%s")
#: ID of the API token to which a one-time login code belongs, keyed by the code's digest.
login = Family(f"{PREFIX}login:%s")
#: List of the digests of an API token's latest one-time login codes.
codes = Family(f"{PREFIX}codes:%s")
#: Hash of facts that finished jobs have proved about ranges of integers: lo-hi -> payload.
mark = Family(f"{PREFIX}mark:%s:%s")
#: Position at which the leader continues a cleanup of a queue or of the jobs in a state.
sweep = Family(f"{PREFIX}sweep:%s")
#: Contents of a key with invalid data. Kept for a week.
quarantined = Family(f"{PREFIX}quarantined:%s")
#: Hash of the RQ job that represents all wake-ups.
rq_job = Family("rq:job:%s")
#: List of the wake-ups in an RQ queue.
rq_queue = Family("rq:queue:%s")
