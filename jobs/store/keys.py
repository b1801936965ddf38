"""Every key of Redis. No other Python module spells one; the functions in `lua/` spell them, too.

A test compares both with the table in `docs/lease-protocol.md`. Times in keys are milliseconds of Redis' clock.
"""

from __future__ import annotations

PREFIX = "ct:"


class Family:
    """Keys that contain ids. Call it with the ids to get a key."""

    def __init__(self, pattern: str) -> None:
        #: The key, with %s for each id.
        self.pattern = pattern

    def __call__(self, *ids: str | int) -> str:
        return self.pattern % ids


#: zset job -> number of its submission: all jobs.
JOBS = f"{PREFIX}jobs"
#: zset job -> when SWEEP must look at it again.
RECHECK = f"{PREFIX}recheck"
#: zset job -> when its timeout has passed: running jobs that have one.
DEADLINES = f"{PREFIX}deadlines"
#: zset job -> when SWEEP purges it.
EXPIRY = f"{PREFIX}expiry"
#: set of queue:kind|version under which jobs wait for a worker that supports them.
UNSUPPORTED = f"{PREFIX}unsupported"
#: hash: swept, the last run of SWEEP; until, before which no lease of a program is reclaimed.
GRACE = f"{PREFIX}grace"
#: The same set for queues of runners, with |requirements appended if jobs have some.
UNSUPPORTED_PROGRAMS = f"{PREFIX}unsupported_programs"
#: set of the jobs of service replicas that wait for a runner.
WAITING_REPLICAS = f"{PREFIX}waiting_replicas"
#: zset job -> since when a runner had no capacity for it: programs.
UNSCHEDULABLE = f"{PREFIX}unschedulable"
#: hash job -> runner|until|leases|all|looked: the runner that is reserved for it.
RESERVED = f"{PREFIX}reserved"
#: zset requirements -> jobs with them that have not ended.
SHAPES = f"{PREFIX}shapes"
#: zset tenant/job|unit -> until when this unit of a program is followed.
FOLLOWED = f"{PREFIX}followed"
#: zset tenant/job|unit|attachment -> when it ends unless its principal makes a request.
ATTACHMENTS = f"{PREFIX}attachments"
#: stream of attachments that changed; short. Coordinators then read them again.
ATTACHMENT_WAKES = f"{PREFIX}attachment_wakes"
#: zset tenant -> when it was registered.
TENANTS = f"{PREFIX}tenants"
#: hash tenant -> number of removed tenants of this name, if any.
GENERATIONS = f"{PREFIX}generations"
#: hash tenant -> weight|max_lanes|max_jobs of registered tenants; tenant|caps -> further caps, as name=most,name=most.
SHARES = f"{PREFIX}shares"
#: set of tenant:kind under which jobs wait for the next day.
DEFERRED = f"{PREFIX}deferred"
#: hash tenant -> stored bytes, of tenants with a cap on them.
STORED = f"{PREFIX}stored"
#: set of tenants that use all their lanes, and gpu:tenant of those that have used their GPU seconds of the day.
CAPPED = f"{PREFIX}capped"
#: hash queue -> the latest time since which an aged first job of it has waited.
AGED = f"{PREFIX}aged"
#: hash worker -> its requests while there are aged jobs.
AGING = f"{PREFIX}aging"
#: counter of submissions and positions.
SEQUENCE = f"{PREFIX}seq"
#: zset worker -> expiry of its slot.
SLOTS = f"{PREFIX}slots"
#: hash worker -> job|lanes.
SLOT_JOBS = f"{PREFIX}slotjob"
#: zset worker -> expiry: live workers.
WORKERS = f"{PREFIX}workers"
#: zset worker -> last heartbeat: workers of the last day.
NODES = f"{PREFIX}nodes"
#: counter of changes of drains, which change a worker's hash between its heartbeats.
DRAINS = f"{PREFIX}drains"
#: stream of all events.
EVENTS = f"{PREFIX}events"
#: The leading coordinator, which runs SWEEP.
LEADER = f"{PREFIX}leader"
#: set of tenants with usage.
USAGES = f"{PREFIX}usages"
#: stream of the audit log: entry N has the id N-0, its hash and its body.
AUDIT_LOG = f"{PREFIX}auditlog"
#: hash: number and hash of the audit log's last entry, of the last one dropped, and of the last one in AUDIT_FILE.
AUDIT_HEAD = f"{PREFIX}audithead"
#: hash queue -> milliseconds of one lane's work that is queued or running.
LOAD = f"{PREFIX}load"
#: hash kind|mode|device -> measured speed relative to the kind's estimate.
PACE = f"{PREFIX}pace"
#: hash kind|device -> committed units.
UNITS = f"{PREFIX}units"
#: hash outcome -> leases that ended so.
OUTCOMES = f"{PREFIX}outcomes"
#: hash kind -> jobs that were submitted.
SUBMITTED = f"{PREFIX}submitted"
#: hash kind|state -> jobs that ended so.
ENDED = f"{PREFIX}ended"
#: hash queue|bound -> histogram of waits in seconds.
WAITS = f"{PREFIX}waits"
#: hash kind|bound -> histogram of durations in seconds.
DURATIONS = f"{PREFIX}durations"
#: hash lane -> its latest span.
SPAN = f"{PREFIX}span"
#: stream of the spans before those.
SPANS = f"{PREFIX}spans"
#: list with one item of measurements for each minute of the last hour.
HISTORY = f"{PREFIX}history"
#: list of the samples of the current minute.
HISTORY_NOW = f"{PREFIX}history:now"
#: hash id -> alert as JSON.
ALERTS = f"{PREFIX}alerts"
#: text: desired number of workers by device, and since when fewer would do.
DESIRED = f"{PREFIX}desired"
#: hash tenant|stored or loose|files or bytes -> sum.
FILE_SUMS = f"{PREFIX}filesums"
#: zset tenant/sha256 -> until when a file without references is kept.
LOOSE = f"{PREFIX}loose"
#: zset tenant/sha256 -> until when the parts of an incomplete file are kept.
UPLOADS = f"{PREFIX}uploads"
#: zset tenant/object -> when the bytes of an object that belongs to no file are deleted.
UNOWNED = f"{PREFIX}unowned"
#: set of tenant/object whose bytes are being deleted.
DOOMED = f"{PREFIX}doomed"
#: zset tenant/artifact -> since when it has no holder.
UNHELD = f"{PREFIX}unheld"
#: text: id of the folder or bucket with the bytes of files, as in its marker; empty while that is written.
FILE_STORE = f"{PREFIX}filestore"
#: set of broken jobs (ids) and keys (names).
BROKEN = f"{PREFIX}broken"
#: text: a key that was broken or contradicted the jobs. While it exists, no job is accepted.
DAMAGED = f"{PREFIX}damaged"
#: written before WAITAOF.
DURABLE = f"{PREFIX}durable"
#: Cause of the last rewrite of the append-only file by the leader: Redis' run_id, and how many writes it refused.
REWRITTEN = f"{PREFIX}rewritten"
#: zset id -> creation: all API tokens.
TOKENS = f"{PREFIX}tokens"
#: text that changes with the set of API tokens and sessions.
TOKENS_VERSION = f"{PREFIX}tokenset"
#: zset id -> expiry: browser sessions.
SESSIONS = f"{PREFIX}sessions"
#: zset tenant|origin of URLs -> when the next delivery to it is due.
DELIVERIES = f"{PREFIX}deliveries"
#: hash of counters: attempts that succeeded and failed; deliveries that were delivered, died, or were dropped.
WEBHOOKS = f"{PREFIX}webhooks"
#: zset schedule -> when the leader processes it next.
SCHEDULES = f"{PREFIX}schedules"
#: set of all services, including those being deleted.
SERVICES = f"{PREFIX}services"
#: zset library of functions -> when a coordinator used it last.
LIBRARIES = f"{PREFIX}libraries"

#: zset job -> since when: jobs that ended or were retried and whose children were not all notified.
WAKING = f"{PREFIX}waking"
#: set of workflows that the leader processes next.
WORKFLOWS_DUE = f"{PREFIX}workflowsdue"

#: set of workflows that the leader is processing.
WORKFLOWS_TAKEN = f"{PREFIX}workflowstaken"
#: hash: workflows by state, idle (since when a running one has had nothing running), at (when they were counted).
WORKFLOW_FIGURES = f"{PREFIX}workflowfigures"

#: zset workflow -> creation: all workflows.
WORKFLOWS = f"{PREFIX}workflows"
#: set of unfinished workflows.
WORKFLOWS_LIVE = f"{PREFIX}workflowslive"
#: zset workflow -> when the leader deletes it.
WORKFLOW_EXPIRY = f"{PREFIX}workflowexpiry"
#: hash tenant -> bytes of the documents and records of its workflows.
WORKFLOW_BYTES = f"{PREFIX}workflowbytes"

#: hash profile -> state|hz|until|hosts: live profiles, as reported to workers.
PROFILING = f"{PREFIX}profiling"
#: hash profile|recording|number -> bytes: parts of recordings on their way to the leader.
PROFILE_PARTS = f"{PREFIX}profile_parts"

#: Pattern of all of RQ's keys.
OF_RQ = "rq:*"
#: RQ's set of its queues' keys.
RQ_QUEUES = "rq:queues"

#: hash of a job's fields.
job = Family(f"{PREFIX}job:%s")


def job_id(name: bytes) -> bytes | None:
    """Return the id of the job whose hash has this name, or None for any other key."""
    return name[len(job("")) :] if name.startswith(job("").encode()) and name.count(b":") == 2 else None


#: hash token -> lo:hi:upto:expiries:errors:granted:lane.
job_lease = Family(f"{PREFIX}job:%s:lease")
#: zset token -> expiry of its lease.
job_leases = Family(f"{PREFIX}job:%s:leases")
#: list of ranges to be leased again.
job_free = Family(f"{PREFIX}job:%s:free")
#: zset of ranges in which the kernel raised an error -> the time before which each is not retried.
job_retry = Family(f"{PREFIX}job:%s:retry")
#: list of dead ranges.
job_dead = Family(f"{PREFIX}job:%s:dead")
#: list of committed partials that are not folded yet.
job_parts = Family(f"{PREFIX}job:%s:parts")
#: Partial into which earlier parts were folded.
job_accumulator = Family(f"{PREFIX}job:%s:acc")
#: hash parent -> ok or any: parents that have not ended as the job needs it.
job_needs = Family(f"{PREFIX}job:%s:needs")
#: zset job -> 0 if it waits for this one, 1 if only for others: blocked jobs after this one.
job_children = Family(f"{PREFIX}job:%s:children")
#: set of jobs that were skipped because of this one.
job_skips = Family(f"{PREFIX}job:%s:skips")
#: hash unit -> artifact with its output: its log and files.
job_files = Family(f"{PREFIX}job:%s:files")
#: hash artifact -> number of units of the job that name it.
job_kept = Family(f"{PREFIX}job:%s:kept")
#: Result as JSON.
job_result = Family(f"{PREFIX}job:%s:result")
#: set of job|token: leases of programs that a runner has.
leased = Family(f"{PREFIX}leased:%s")
#: hash unit -> record of its last failure, JSON: of the first thousand failed units of a program.
job_failures = Family(f"{PREFIX}job:%s:failures")
#: stream of the job's own events.
job_events = Family(f"{PREFIX}job:%s:ev")
#: stream of the live lines of a program that is followed.
output = Family(f"{PREFIX}output:%s")
#: hash of the size of such a stream: bytes, and how many more may be added now.
outputs = Family(f"{PREFIX}outputs:%s")
#: hash of a shell in a running program: owner, unit, state, and offsets of both directions.
attachment = Family(f"{PREFIX}attachment:%s")
#: stream of input that was not read yet. An entry's id is the byte offset after it.
attachment_input = Family(f"{PREFIX}attachment_input:%s")
#: stream of output that was not read yet, with the same ids.
attachment_output = Family(f"{PREFIX}attachment_output:%s")
#: zset job -> position: jobs for which workers are notified.
pending = Family(f"{PREFIX}pending:%s")
#: zset job -> position: one tenant's part of `pending`.
tenant_pending = Family(f"{PREFIX}tenant_pending:%s:%s")
#: zset job -> number of holders: held jobs of a tenant.
held = Family(f"{PREFIX}held:%s:%s")
#: set of tenants that may have held jobs in a queue.
holding = Family(f"{PREFIX}holding:%s")
#: zset tenant -> virtual time: tenants with pending jobs in a queue.
order = Family(f"{PREFIX}order:%s")
#: hash tenant -> virtual time at which its last work of a priority ends.
finish = Family(f"{PREFIX}finish:%s")
#: Virtual clock of a priority.
virtual = Family(f"{PREFIX}virtual:%s")
#: zset requirements -> jobs of a tenant with them that have not ended.
tenant_shapes = Family(f"{PREFIX}shapes:%s")
#: zset job -> number of its submission: queued and running jobs of a tenant, without its backlog.
admitted = Family(f"{PREFIX}admitted:%s")
#: zset job -> position: queued jobs that wait until a cap of their tenant admits them.
backlog = Family(f"{PREFIX}backlog:%s")
#: zset job -> number of its submission: blocked jobs of a tenant.
blocked = Family(f"{PREFIX}blocked:%s")
#: zset job -> position: jobs of a kind that wait for the next day, because their tenant has used its units of the day.
deferred = Family(f"{PREFIX}deferred:%s:%s")
#: hash job -> its stored bytes, for a tenant with a cap on them.
stored = Family(f"{PREFIX}stored:%s")
#: Field of SHARES with a tenant's further caps.
caps = Family("%s|caps")
#: zset token -> expiry: leases of a tenant's jobs.
lanes = Family(f"{PREFIX}lanes:%s")
#: zset job -> position: jobs that wait for a worker with this version of their kind.
unsupported = Family(f"{PREFIX}unsupported:%s:%s|%s")
#: The zset for a member of UNSUPPORTED or UNSUPPORTED_PROGRAMS.
unsupported_member = Family(f"{UNSUPPORTED}:%s")
#: zset job -> number of its submission: jobs in this state.
in_state = Family(f"{PREFIX}in:%s")
#: zset worker -> expiry: live workers of this device.
workers_of = Family(f"{PREFIX}workers:%s")
#: hash of a worker's record, from its heartbeats.
worker = Family(f"{PREFIX}worker:%s")
#: A channel, not a key: ids of jobs that were cancelled or paused and of which a worker has leases.
stops = Family(f"{PREFIX}stops:%s")
#: Worker that has claimed this GPU.
gpu = Family(f"{PREFIX}gpu:%s")
#: set of the GPUs that a runner has claimed.
claimed = Family(f"{PREFIX}claimed:%s")
#: zset priority -> until when programs (wanted) or kernels (needed) of it are known to wait for this GPU.
gpu_wish = Family(f"{PREFIX}gpu:%s:%s")
#: hash day|name -> usage of a tenant. day: a number since 1970, or `before`.
usage = Family(f"{PREFIX}usage:%s")
#: string job|digest of the request's body, for a day.
idempotency = Family(f"{PREFIX}idem:%s:%s")
#: hash of an API token.
token = Family(f"{PREFIX}token:%s")
#: hash of a browser session.
session = Family(f"{PREFIX}session:%s")
#: zset session -> expiry: browser sessions of this token.
logins = Family(f"{PREFIX}logins:%s")
#: hash name -> key|changed: a tenant's secrets, the id of each encryption key, and when the value was set.
secrets = Family(f"{PREFIX}secrets:%s")
#: hash name -> key.sealed: the values of a tenant's secrets, encrypted.
secret = Family(f"{PREFIX}secret:%s")
#: hash of a schedule.
schedule = Family(f"{PREFIX}schedule:%s")
#: hash name -> schedule: a tenant's schedules.
schedules_of = Family(f"{PREFIX}schedules:%s")
#: hash of a service.
service = Family(f"{PREFIX}service:%s")
#: hash name -> service: a tenant's services.
services_of = Family(f"{PREFIX}services:%s")
#: hash number -> generation|since|stopping: replicas of a service.
service_replicas = Family(f"{PREFIX}servicereplicas:%s")
#: hash coordinator -> requests that it has for a service, including waiting ones.
service_asked = Family(f"{PREFIX}serviceasked:%s")
#: hash slot|name -> count: requests to a service and their times, by ten seconds; and the newest slot.
service_figures = Family(f"{PREFIX}servicefigures:%s")
#: hash of a runner's report about its replica: state, address and key.
replica = Family(f"{PREFIX}replica:%s")
#: hash of the coordinator to which a runner has a tunnel: where others reach it, with which key, on which host.
tunnel = Family(f"{PREFIX}tunnel:%s")
#: hash coordinator -> requests that it has passed on to a replica and that have not ended.
replica_busy = Family(f"{PREFIX}replicabusy:%s")
#: Number of the last batch of requests to models that a coordinator had counted; for an hour.
inference_counted = Family(f"{PREFIX}inferencecounted:%s")
#: hash of a delivery of a webhook.
delivery = Family(f"{PREFIX}delivery:%s")
#: zset delivery -> when it is due: those of a tenant to one scheme, host and port.
outbox = Family(f"{PREFIX}outbox:%s")
#: zset delivery -> since when: a tenant's deliveries in this state, of those that have ended the latest.
deliveries_of = Family(f"{PREFIX}deliveries:%s:%s")
#: hash sha256 -> size:references:objects: a tenant's files.
files = Family(f"{PREFIX}files:%s")
#: hash number -> object, and its size: parts of a file that is not whole yet.
parts = Family(f"{PREFIX}parts:%s:%s")
#: hash of an artifact: bytes, files, when it was created, its manifest.
artifact = Family(f"{PREFIX}artifact:%s:%s")
#: zset artifact -> creation: a tenant's artifacts that somebody holds.
artifacts = Family(f"{PREFIX}artifacts:%s")
#: set of what keeps an artifact: kept, name:NAME, job:ID.
holders = Family(f"{PREFIX}holders:%s:%s")
#: hash name -> artifact.
names = Family(f"{PREFIX}names:%s")
#: hash of a workflow.
workflow = Family(f"{PREFIX}workflow:%s")
#: Actions of a workflow, as JSON in zlib.
workflow_document = Family(f"{PREFIX}workflowdocument:%s")
#: hash action, or action/number of an item -> job.
workflow_jobs = Family(f"{PREFIX}workflowjobs:%s")
#: hash action, or action/number of an item -> outcome of an action that is not a job, JSON.
workflow_records = Family(f"{PREFIX}workflowrecords:%s")
#: set of actions, or action/number, whose jobs must be retried.
workflow_retries = Family(f"{PREFIX}workflowretries:%s")
#: zset workflow -> creation: workflows of a tenant.
workflows_of = Family(f"{PREFIX}workflows:%s")
#: hash of a profile.
profile = Family(f"{PREFIX}profile:%s")
#: hash name -> profile: a tenant's profiles.
profiles_of = Family(f"{PREFIX}profiles:%s")
#: hash device -> worker|until: the worker that samples a device.
profile_claims = Family(f"{PREFIX}profile_claims:%s")
#: hash recording -> its record, JSON; recording|name -> its worker, last report, file and end.
profile_recordings = Family(f"{PREFIX}profile_recordings:%s")
#: Token of the one-time login code with this digest.
login = Family(f"{PREFIX}login:%s")
#: list of digests of a token's latest one-time login codes.
codes = Family(f"{PREFIX}codes:%s")
#: hash range lo-hi -> payload: facts that finished jobs have proved.
mark = Family(f"{PREFIX}mark:%s:%s")
#: Position from which SWEEP continues to move jobs out of this queue, or its cursor over jobs in this state.
sweep = Family(f"{PREFIX}sweep:%s")
#: Contents of a broken key, kept for a week.
quarantined = Family(f"{PREFIX}quarantined:%s")
#: hash of the RQ job of all wake-ups.
rq_job = Family("rq:job:%s")
#: list of the wake-ups in an RQ queue.
rq_queue = Family("rq:queue:%s")
