"""All Redis keys. No other Python module spells a key; the functions in `lua/` spell them, too.

A test compares both with the table in `docs/lease-protocol.md`. Times in keys are milliseconds of Redis time.
"""

from __future__ import annotations

PREFIX = "ct:"


class Family:
    """A group of keys that contain IDs. Call it with the IDs to get a key."""

    def __init__(self, pattern: str) -> None:
        #: Key with a %s for each ID.
        self.pattern = pattern

    def __call__(self, *ids: str | int) -> str:
        return self.pattern % ids


#: Sorted set of all jobs, scored by submission number.
JOBS = f"{PREFIX}jobs"
#: Sorted set of jobs, scored by the time at which the leader checks them again.
RECHECK = f"{PREFIX}recheck"
#: Sorted set of running jobs with a timeout, scored by their deadline.
DEADLINES = f"{PREFIX}deadlines"
#: Sorted set of jobs, scored by the time at which the leader deletes them.
EXPIRY = f"{PREFIX}expiry"
#: Set of queue:kind|version for which jobs wait until a worker supports the kind version.
UNSUPPORTED = f"{PREFIX}unsupported"
#: Hash: swept (time of the last cleanup) and until (no program's lease is reclaimed before this time).
GRACE = f"{PREFIX}grace"
#: Set like UNSUPPORTED for runner queues. Members end with |requirements if the jobs have requirements.
UNSUPPORTED_PROGRAMS = f"{PREFIX}unsupported_programs"
#: Set of jobs of service replicas that are waiting for a runner.
WAITING_REPLICAS = f"{PREFIX}waiting_replicas"
#: Sorted set of programs, scored by the time since which no runner has had capacity for them.
UNSCHEDULABLE = f"{PREFIX}unschedulable"
#: Hash of the runner reserved for each job: job -> runner|until|leases|all|looked.
RESERVED = f"{PREFIX}reserved"
#: Sorted set of requirements, scored by the number of unfinished jobs that have them.
SHAPES = f"{PREFIX}shapes"
#: Sorted set of followed units of programs (tenant/job|unit), scored by the time at which following ends.
FOLLOWED = f"{PREFIX}followed"
#: Sorted set of attachments (tenant/job|unit|attachment), scored by their end unless the principal sends a request.
ATTACHMENTS = f"{PREFIX}attachments"
#: Short stream of changed attachments, which makes coordinators read the attachments again.
ATTACHMENT_WAKES = f"{PREFIX}attachment_wakes"
#: Sorted set of tenants, scored by registration time.
TENANTS = f"{PREFIX}tenants"
#: Hash of the number of removed tenants by tenant name.
GENERATIONS = f"{PREFIX}generations"
#: Hash of tenants: tenant -> weight|max_lanes|max_jobs; tenant|caps -> further caps as name=most,name=most.
SHARES = f"{PREFIX}shares"
#: Set of tenant:kind for which jobs wait until the next day.
DEFERRED = f"{PREFIX}deferred"
#: Hash of stored bytes by tenant, for tenants with a cap on stored bytes.
STORED = f"{PREFIX}stored"
#: Set of tenants that use all their lanes, and gpu:tenant for tenants that have used today's GPU seconds.
CAPPED = f"{PREFIX}capped"
#: Hash of the time since which the aged first job of a queue has waited: queue -> latest such time.
AGED = f"{PREFIX}aged"
#: Hash of the number of requests per worker while aged jobs exist.
AGING = f"{PREFIX}aging"
#: Counter of submissions and queue positions.
SEQUENCE = f"{PREFIX}seq"
#: Sorted set of workers with a slot, scored by the slot's expiry.
SLOTS = f"{PREFIX}slots"
#: Hash of the job in each worker's slot: worker -> job|lanes.
SLOT_JOBS = f"{PREFIX}slotjob"
#: Sorted set of live workers, scored by expiry.
WORKERS = f"{PREFIX}workers"
#: Sorted set of the workers of the last day, scored by their last heartbeat.
NODES = f"{PREFIX}nodes"
#: Counter of drain changes, which modify a worker's hash between heartbeats.
DRAINS = f"{PREFIX}drains"
#: Stream of all events.
EVENTS = f"{PREFIX}events"
#: Name of the leading coordinator, which runs the periodic cleanup.
LEADER = f"{PREFIX}leader"
#: Set of tenants with recorded usage.
USAGES = f"{PREFIX}usages"
#: Stream of the audit log: entry N has the ID N-0, its hash and its body.
AUDIT_LOG = f"{PREFIX}auditlog"
#: Hash of numbers and hashes of the last audit log entry, the last dropped one, and the last one in AUDIT_FILE.
AUDIT_HEAD = f"{PREFIX}audithead"
#: Hash of queued and running work by queue, in milliseconds of one lane.
LOAD = f"{PREFIX}load"
#: Hash of measured speed relative to the kind's estimate, by kind|mode|device.
PACE = f"{PREFIX}pace"
#: Hash of committed units by kind|device.
UNITS = f"{PREFIX}units"
#: Hash of the number of ended leases by outcome.
OUTCOMES = f"{PREFIX}outcomes"
#: Hash of the number of submitted jobs by kind.
SUBMITTED = f"{PREFIX}submitted"
#: Hash of the number of finished jobs by kind|state.
ENDED = f"{PREFIX}ended"
#: Hash of wait time histograms in seconds, by queue|bound.
WAITS = f"{PREFIX}waits"
#: Hash of duration histograms in seconds, by kind|bound.
DURATIONS = f"{PREFIX}durations"
#: Hash of the latest span of each lane.
SPAN = f"{PREFIX}span"
#: Stream of earlier spans of all lanes.
SPANS = f"{PREFIX}spans"
#: List with one block of measurements per minute of the last hour.
HISTORY = f"{PREFIX}history"
#: List of the samples of the current minute.
HISTORY_NOW = f"{PREFIX}history:now"
#: Hash of alerts by ID, as JSON.
ALERTS = f"{PREFIX}alerts"
#: Text with the desired number of workers by device, and the time since which fewer would suffice.
DESIRED = f"{PREFIX}desired"
#: Hash of sums by tenant|stored or loose|files or bytes.
FILE_SUMS = f"{PREFIX}filesums"
#: Sorted set of files without references (tenant/sha256), scored by the time until which they are kept.
LOOSE = f"{PREFIX}loose"
#: Sorted set of incomplete files (tenant/sha256), scored by the time until which their parts are kept.
UPLOADS = f"{PREFIX}uploads"
#: Sorted set of objects that belong to no file (tenant/object), scored by the time at which their bytes are deleted.
UNOWNED = f"{PREFIX}unowned"
#: Set of tenant/object whose bytes are being deleted.
DOOMED = f"{PREFIX}doomed"
#: Sorted set of artifacts without holders (tenant/artifact), scored by the time since which they have none.
UNHELD = f"{PREFIX}unheld"
#: ID of the folder or bucket that stores the bytes of files, as in its marker file. Empty until the marker is written.
FILE_STORE = f"{PREFIX}filestore"
#: Set of broken jobs (by ID) and broken keys (by name).
BROKEN = f"{PREFIX}broken"
#: Name of a key that was broken or contradicted the jobs. While it is set, Redis accepts no jobs.
DAMAGED = f"{PREFIX}damaged"
#: Key that is written before WAITAOF.
DURABLE = f"{PREFIX}durable"
#: Reason for the last rewrite of the append-only file: Redis' run_id and its number of rejected writes.
REWRITTEN = f"{PREFIX}rewritten"
#: Sorted set of all API tokens, scored by creation time.
TOKENS = f"{PREFIX}tokens"
#: Text that changes whenever an API token or session is added or removed.
TOKENS_VERSION = f"{PREFIX}tokenset"
#: Sorted set of browser sessions, scored by expiry.
SESSIONS = f"{PREFIX}sessions"
#: Sorted set of tenant|origin (of webhook URLs), scored by the time of the next delivery.
DELIVERIES = f"{PREFIX}deliveries"
#: Hash of counters of webhook attempts (succeeded, failed) and deliveries (delivered, dead, dropped).
WEBHOOKS = f"{PREFIX}webhooks"
#: Sorted set of schedules, scored by the time at which the leader processes them next.
SCHEDULES = f"{PREFIX}schedules"
#: Set of all services, including services that are being deleted.
SERVICES = f"{PREFIX}services"
#: Sorted set of function libraries, scored by the time at which a coordinator last used them.
LIBRARIES = f"{PREFIX}libraries"

#: Sorted set of jobs that ended or were retried and whose children are not all notified, scored by that time.
WAKING = f"{PREFIX}waking"
#: Set of workflows that the leader processes next.
WORKFLOWS_DUE = f"{PREFIX}workflowsdue"

#: Set of workflows that the leader is processing.
WORKFLOWS_TAKEN = f"{PREFIX}workflowstaken"
#: Hash of workflow counts by state, with idle (time since a running one has had no active job) and at (count time).
WORKFLOW_FIGURES = f"{PREFIX}workflowfigures"

#: Sorted set of all workflows, scored by creation time.
WORKFLOWS = f"{PREFIX}workflows"
#: Set of unfinished workflows.
WORKFLOWS_LIVE = f"{PREFIX}workflowslive"
#: Sorted set of workflows, scored by the time at which the leader deletes them.
WORKFLOW_EXPIRY = f"{PREFIX}workflowexpiry"
#: Hash of the size of workflow documents and records in bytes, by tenant.
WORKFLOW_BYTES = f"{PREFIX}workflowbytes"

#: Hash of active profiles as reported to workers: profile -> state|hz|until|hosts.
PROFILING = f"{PREFIX}profiling"
#: Hash of recording parts that wait for the leader: profile|recording|number -> bytes.
PROFILE_PARTS = f"{PREFIX}profile_parts"

#: Pattern that matches all keys of RQ.
OF_RQ = "rq:*"
#: RQ's set of its queue keys.
RQ_QUEUES = "rq:queues"

#: Hash of a job's fields.
job = Family(f"{PREFIX}job:%s")


def job_id(name: bytes) -> bytes | None:
    """Return the ID of the job whose hash has this key, or None for any other key."""
    return name[len(job("")) :] if name.startswith(job("").encode()) and name.count(b":") == 2 else None


#: Hash of a job's leases: token -> lo:hi:upto:expiries:errors:granted:lane.
job_lease = Family(f"{PREFIX}job:%s:lease")
#: Sorted set of a job's lease tokens, scored by expiry.
job_leases = Family(f"{PREFIX}job:%s:leases")
#: List of a job's ranges that must be leased again.
job_free = Family(f"{PREFIX}job:%s:free")
#: Sorted set of ranges whose kernel raised an error, scored by the earliest time of their retry.
job_retry = Family(f"{PREFIX}job:%s:retry")
#: List of a job's dead ranges.
job_dead = Family(f"{PREFIX}job:%s:dead")
#: List of a job's committed partials that are not merged yet.
job_parts = Family(f"{PREFIX}job:%s:parts")
#: Partial into which earlier partials were merged.
job_accumulator = Family(f"{PREFIX}job:%s:acc")
#: Hash of a job's unmet dependencies: parent -> ok or any.
job_needs = Family(f"{PREFIX}job:%s:needs")
#: Sorted set of a job's blocked children, scored 0 if they wait for this job, 1 if they wait only for others.
job_children = Family(f"{PREFIX}job:%s:children")
#: Set of jobs that were skipped because this job failed or was cancelled.
job_skips = Family(f"{PREFIX}job:%s:skips")
#: Hash of the artifacts with the output (log and files) of a job's units, by unit.
job_files = Family(f"{PREFIX}job:%s:files")
#: Hash of the number of a job's units that name an artifact, by artifact.
job_kept = Family(f"{PREFIX}job:%s:kept")
#: Result of a job as JSON.
job_result = Family(f"{PREFIX}job:%s:result")
#: Set of a runner's leases of programs, as job|token.
leased = Family(f"{PREFIX}leased:%s")
#: Hash of failure records by unit, as JSON. Only the first thousand failed units of a program have one.
job_failures = Family(f"{PREFIX}job:%s:failures")
#: Stream of a job's own events.
job_events = Family(f"{PREFIX}job:%s:ev")
#: Stream of the live output lines of a followed program.
output = Family(f"{PREFIX}output:%s")
#: Hash of the size of an output stream in bytes, and the number of bytes that can be added now.
outputs = Family(f"{PREFIX}outputs:%s")
#: Hash of a shell in a running program: owner, unit, state, and the offsets of both directions.
attachment = Family(f"{PREFIX}attachment:%s")
#: Stream of unread input of a shell. The ID of an entry is the byte offset after the entry.
attachment_input = Family(f"{PREFIX}attachment_input:%s")
#: Stream of unread output of a shell. The ID of an entry is the byte offset after the entry.
attachment_output = Family(f"{PREFIX}attachment_output:%s")
#: Sorted set of a queue's pending jobs, for which workers are notified, scored by position.
pending = Family(f"{PREFIX}pending:%s")
#: Sorted set of one tenant's pending jobs of a queue, scored by position.
tenant_pending = Family(f"{PREFIX}tenant_pending:%s:%s")
#: Sorted set of a tenant's held jobs, scored by the number of their holders.
held = Family(f"{PREFIX}held:%s:%s")
#: Set of tenants that can have held jobs in a queue.
holding = Family(f"{PREFIX}holding:%s")
#: Sorted set of tenants with pending jobs in a queue, scored by virtual time.
order = Family(f"{PREFIX}order:%s")
#: Hash of the virtual time at which a tenant's last work of a priority ends, by tenant.
finish = Family(f"{PREFIX}finish:%s")
#: Virtual clock of a priority.
virtual = Family(f"{PREFIX}virtual:%s")
#: Sorted set of requirements, scored by the number of a tenant's unfinished jobs that have them.
tenant_shapes = Family(f"{PREFIX}shapes:%s")
#: Sorted set of a tenant's queued and running jobs without its backlog, scored by submission number.
admitted = Family(f"{PREFIX}admitted:%s")
#: Sorted set of queued jobs that wait for a cap of their tenant, scored by position.
backlog = Family(f"{PREFIX}backlog:%s")
#: Sorted set of a tenant's blocked jobs, scored by submission number.
blocked = Family(f"{PREFIX}blocked:%s")
#: Sorted set of a tenant's jobs of a kind that wait for the next day because of a daily cap, scored by position.
deferred = Family(f"{PREFIX}deferred:%s:%s")
#: Hash of stored bytes by job, for a tenant with a cap on stored bytes.
stored = Family(f"{PREFIX}stored:%s")
#: Field of SHARES with a tenant's further caps.
caps = Family("%s|caps")
#: Sorted set of the lease tokens of a tenant's jobs, scored by expiry.
lanes = Family(f"{PREFIX}lanes:%s")
#: Sorted set of jobs that wait for a worker with this version of their kind, scored by position.
unsupported = Family(f"{PREFIX}unsupported:%s:%s|%s")
#: Sorted set of jobs for one member of UNSUPPORTED or UNSUPPORTED_PROGRAMS.
unsupported_member = Family(f"{UNSUPPORTED}:%s")
#: Sorted set of the jobs in a state, scored by submission number.
in_state = Family(f"{PREFIX}in:%s")
#: Sorted set of live workers of a device, scored by expiry.
workers_of = Family(f"{PREFIX}workers:%s")
#: Hash of a worker's record, from its heartbeats.
worker = Family(f"{PREFIX}worker:%s")
#: Pub/sub channel, not a key: IDs of cancelled or paused jobs of which a worker has leases.
stops = Family(f"{PREFIX}stops:%s")
#: Name of the worker that has claimed a GPU.
gpu = Family(f"{PREFIX}gpu:%s")
#: Set of GPUs that a runner has claimed.
claimed = Family(f"{PREFIX}claimed:%s")
#: Sorted set of priorities of programs (wanted) or kernels (needed) that wait for a GPU, scored by expiry.
gpu_wish = Family(f"{PREFIX}gpu:%s:%s")
#: Hash of a tenant's usage by day|name. The day is a number since 1970, or `before`.
usage = Family(f"{PREFIX}usage:%s")
#: String with the job ID and the digest of the request body (job|digest), kept for a day.
idempotency = Family(f"{PREFIX}idem:%s:%s")
#: Hash of an API token.
token = Family(f"{PREFIX}token:%s")
#: Hash of a browser session.
session = Family(f"{PREFIX}session:%s")
#: Sorted set of the browser sessions of a token, scored by expiry.
logins = Family(f"{PREFIX}logins:%s")
#: Hash of a tenant's secrets: name -> key|changed, the ID of the encryption key and the time of the last change.
secrets = Family(f"{PREFIX}secrets:%s")
#: Hash of the encrypted values of a tenant's secrets: name -> key.sealed.
secret = Family(f"{PREFIX}secret:%s")
#: Hash of a schedule.
schedule = Family(f"{PREFIX}schedule:%s")
#: Hash of a tenant's schedules: name -> schedule ID.
schedules_of = Family(f"{PREFIX}schedules:%s")
#: Hash of a service.
service = Family(f"{PREFIX}service:%s")
#: Hash of a tenant's services: name -> service ID.
services_of = Family(f"{PREFIX}services:%s")
#: Hash of the replicas of a service: number -> generation|since|stopping.
service_replicas = Family(f"{PREFIX}servicereplicas:%s")
#: Hash of the number of requests that each coordinator has for a service, including waiting ones.
service_asked = Family(f"{PREFIX}serviceasked:%s")
#: Hash of requests to a service and their durations, slot|name -> count, in ten-second slots; and the newest slot.
service_figures = Family(f"{PREFIX}servicefigures:%s")
#: Hash of a runner's report about its replica, with state, address and key.
replica = Family(f"{PREFIX}replica:%s")
#: Hash of the coordinator that a runner's tunnel connects to: its URL for other coordinators, its key and its host.
tunnel = Family(f"{PREFIX}tunnel:%s")
#: Hash of the number of requests that each coordinator is forwarding to a replica.
replica_busy = Family(f"{PREFIX}replicabusy:%s")
#: Number of the last batch of model requests that a coordinator has counted, kept for an hour.
inference_counted = Family(f"{PREFIX}inferencecounted:%s")
#: Hash of a webhook delivery.
delivery = Family(f"{PREFIX}delivery:%s")
#: Sorted set of a tenant's deliveries to one scheme, host and port, scored by the time of their next attempt.
outbox = Family(f"{PREFIX}outbox:%s")
#: Sorted set of a tenant's deliveries in a state, scored by the time of the change. Old ended ones are removed.
deliveries_of = Family(f"{PREFIX}deliveries:%s:%s")
#: Hash of a tenant's files: sha256 -> size:references:objects.
files = Family(f"{PREFIX}files:%s")
#: Hash of the uploaded parts of an incomplete file: number -> object, and the file's size.
parts = Family(f"{PREFIX}parts:%s:%s")
#: Hash of an artifact: size in bytes, number of files, creation time and manifest.
artifact = Family(f"{PREFIX}artifact:%s:%s")
#: Sorted set of a tenant's artifacts that have holders, scored by creation time.
artifacts = Family(f"{PREFIX}artifacts:%s")
#: Set of an artifact's holders: kept, name:NAME, job:ID.
holders = Family(f"{PREFIX}holders:%s:%s")
#: Hash of a tenant's artifact names: name -> artifact ID.
names = Family(f"{PREFIX}names:%s")
#: Hash of a workflow.
workflow = Family(f"{PREFIX}workflow:%s")
#: Actions of a workflow, as zlib-compressed JSON.
workflow_document = Family(f"{PREFIX}workflowdocument:%s")
#: Hash of a workflow's jobs, by action or by action/number for items.
workflow_jobs = Family(f"{PREFIX}workflowjobs:%s")
#: Hash of the outcomes of actions without a job, as JSON, by action or by action/number for items.
workflow_records = Family(f"{PREFIX}workflowrecords:%s")
#: Set of actions, or action/number, whose jobs must be retried.
workflow_retries = Family(f"{PREFIX}workflowretries:%s")
#: Sorted set of a tenant's workflows, scored by creation time.
workflows_of = Family(f"{PREFIX}workflows:%s")
#: Hash of a profile.
profile = Family(f"{PREFIX}profile:%s")
#: Hash of a tenant's profiles: name -> profile ID.
profiles_of = Family(f"{PREFIX}profiles:%s")
#: Hash of the worker that samples each device: device -> worker|until.
profile_claims = Family(f"{PREFIX}profile_claims:%s")
#: Hash of recordings as JSON. Fields recording|name contain the worker, last report, file and end.
profile_recordings = Family(f"{PREFIX}profile_recordings:%s")
#: Token for the one-time login code with this digest.
login = Family(f"{PREFIX}login:%s")
#: List of the digests of a token's latest one-time login codes.
codes = Family(f"{PREFIX}codes:%s")
#: Hash of facts that finished jobs have proved: range lo-hi -> payload.
mark = Family(f"{PREFIX}mark:%s:%s")
#: Position from which the leader continues to move jobs out of a queue, or its cursor over the jobs in a state.
sweep = Family(f"{PREFIX}sweep:%s")
#: Contents of a broken key, kept for a week.
quarantined = Family(f"{PREFIX}quarantined:%s")
#: Hash of the RQ job that all wake-ups share.
rq_job = Family("rq:job:%s")
#: List of the wake-ups in an RQ queue.
rq_queue = Family("rq:queue:%s")
