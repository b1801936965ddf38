"""Every key of Redis: the only place in Python that spells one. Lua's own spelling is in the files of `lua/`.

A test compares both with the table in `docs/lease-protocol.md`. Times in keys are milliseconds of Redis' clock.
"""

from __future__ import annotations

PREFIX = "ct:"


class Family:
    """Keys that differ by the ids in them. Call it with these to get a key."""

    def __init__(self, pattern: str) -> None:
        #: The key, with %s for each id.
        self.pattern = pattern

    def __call__(self, *ids: str | int) -> str:
        return self.pattern % ids


#: zset job -> number of its submission: all jobs.
JOBS = f"{PREFIX}jobs"
#: zset job -> when somebody must look at it again.
RECHECK = f"{PREFIX}recheck"
#: zset job -> when its timeout is over: running jobs that have one.
DEADLINES = f"{PREFIX}deadlines"
#: zset job -> when SWEEP purges it.
EXPIRY = f"{PREFIX}expiry"
#: set of queue:kind|version under which jobs wait for a worker that can compute them.
UNSUPPORTED = f"{PREFIX}unsupported"
#: hash: swept, when SWEEP ran last; until, before which no lease of a program is taken back.
GRACE = f"{PREFIX}grace"
#: set of the same of queues of runners, with |requirements behind it where jobs have some.
UNSUPPORTED_PROGRAMS = f"{PREFIX}unsupported_programs"
#: set of the jobs of replicas of services that wait for a runner.
WAITING_REPLICAS = f"{PREFIX}waiting_replicas"
#: zset job -> since when a runner had no room for it: jobs of programs.
UNSCHEDULABLE = f"{PREFIX}unschedulable"
#: hash job -> runner|until|leases|all|looked: the runner that is kept for it.
RESERVED = f"{PREFIX}reserved"
#: zset requirements -> jobs with them that have not ended.
SHAPES = f"{PREFIX}shapes"
#: zset tenant/job|unit -> until when somebody follows this unit of a program.
FOLLOWED = f"{PREFIX}followed"
#: zset tenant/job|unit|attachment -> until when it lasts unless its principal is heard.
ATTACHMENTS = f"{PREFIX}attachments"
#: stream of attachments of which something changed, short: coordinators read them anew.
ATTACHMENT_WAKES = f"{PREFIX}attachment_wakes"
#: zset tenant -> when it was registered.
TENANTS = f"{PREFIX}tenants"
#: hash tenant -> how many of this name were removed, if any.
GENERATIONS = f"{PREFIX}generations"
#: hash tenant -> weight|max_lanes|max_jobs, of those that are registered; tenant|caps -> further caps, as
#: what=most,what=most.
SHARES = f"{PREFIX}shares"
#: set of tenant:kind under which jobs wait for the next day.
DEFERRED = f"{PREFIX}deferred"
#: hash tenant -> bytes stored of its jobs, of tenants with a cap on them.
STORED = f"{PREFIX}stored"
#: set of tenants that use all their lanes, and gpu:tenant of those that have used the GPU seconds of a day.
CAPPED = f"{PREFIX}capped"
#: hash queue -> the latest time since which an aged head of it waits.
AGED = f"{PREFIX}aged"
#: hash worker -> its turns while there are aged heads.
AGING = f"{PREFIX}aging"
#: counter that numbers jobs and turns.
SEQUENCE = f"{PREFIX}seq"
#: zset worker -> expiry of its slot.
SLOTS = f"{PREFIX}slots"
#: hash worker -> job|lanes.
SLOT_JOBS = f"{PREFIX}slotjob"
#: zset worker -> expiry: workers that live.
WORKERS = f"{PREFIX}workers"
#: zset worker -> last heartbeat: workers of the last day.
NODES = f"{PREFIX}nodes"
#: counter of drains and their ends, which change a worker's hash between its heartbeats.
DRAINS = f"{PREFIX}drains"
#: stream of all events.
EVENTS = f"{PREFIX}events"
#: the coordinator that leads, and sweeps.
LEADER = f"{PREFIX}leader"
#: set of tenants that have used something.
USAGES = f"{PREFIX}usages"
#: stream of the audit log: entry N has the id N-0, its hash and its body.
AUDIT_LOG = f"{PREFIX}auditlog"
#: hash: number and hash of the audit log's last entry, of the last one dropped, and of the last one in AUDIT_FILE.
AUDIT_HEAD = f"{PREFIX}audithead"
#: hash queue -> milliseconds of one lane's work that wait or run.
LOAD = f"{PREFIX}load"
#: hash kind|mode|device -> measured pace over the kind's estimate.
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
#: list of a minute's figures each: the last hour.
HISTORY = f"{PREFIX}history"
#: list of the samples of the minute that is not full.
HISTORY_NOW = f"{PREFIX}history:now"
#: hash id -> alert as JSON.
ALERTS = f"{PREFIX}alerts"
#: text: workers that the work needs, by device, and since when fewer would do.
DESIRED = f"{PREFIX}desired"
#: hash tenant|stored or loose|files or bytes -> how many.
FILE_SUMS = f"{PREFIX}filesums"
#: zset tenant/sha256 -> until when a file stays that no artifact refers to.
LOOSE = f"{PREFIX}loose"
#: zset tenant/sha256 -> until when the parts of a file stay that is not whole.
UPLOADS = f"{PREFIX}uploads"
#: zset tenant/object -> when the bytes of an object are deleted that is no file's.
UNOWNED = f"{PREFIX}unowned"
#: set of tenant/object whose bytes are being deleted.
DOOMED = f"{PREFIX}doomed"
#: zset tenant/artifact -> since when nobody holds it.
UNHELD = f"{PREFIX}unheld"
#: text: id of the folder or bucket that holds the bytes of files, as its marker has it; empty while that is written.
FILE_STORE = f"{PREFIX}filestore"
#: set of jobs by id and keys by name that were found broken.
BROKEN = f"{PREFIX}broken"
#: text: a key that was found broken, or did not fit the jobs. While it is there, no job is accepted.
DAMAGED = f"{PREFIX}damaged"
#: written before WAITAOF.
DURABLE = f"{PREFIX}durable"
#: What the append-only file was last rewritten for by the leader: the run_id of Redis, and how many writes it refused.
REWRITTEN = f"{PREFIX}rewritten"
#: zset id -> creation: all API tokens.
TOKENS = f"{PREFIX}tokens"
#: text that changes with the set of API tokens and sessions.
TOKENS_VERSION = f"{PREFIX}tokenset"
#: zset id -> expiry: browsers that are logged in.
SESSIONS = f"{PREFIX}sessions"
#: zset tenant|origin of URLs -> when the next delivery to there is due.
DELIVERIES = f"{PREFIX}deliveries"
#: hash of counters: attempts that succeeded and failed; deliveries that were delivered, died, or were dropped.
WEBHOOKS = f"{PREFIX}webhooks"
#: zset schedule -> when the leader looks at it next.
SCHEDULES = f"{PREFIX}schedules"
#: set of all services, those that are being deleted, too.
SERVICES = f"{PREFIX}services"
#: zset library of functions -> when a coordinator used it last.
LIBRARIES = f"{PREFIX}libraries"

#: zset job -> since when: jobs that have ended or are tried again, of which not all children know.
WAKING = f"{PREFIX}waking"
#: set of workflows at which the leader looks next.
WORKFLOWS_DUE = f"{PREFIX}workflowsdue"

#: set of workflows that were due, and at which the leader has not looked yet.
WORKFLOWS_TAKEN = f"{PREFIX}workflowstaken"
#: hash: workflows by state, idle (since when one that runs has had nothing that runs), at (when they were counted).
WORKFLOW_FIGURES = f"{PREFIX}workflowfigures"

#: zset workflow -> creation: all workflows.
WORKFLOWS = f"{PREFIX}workflows"
#: set of workflows that have not ended.
WORKFLOWS_LIVE = f"{PREFIX}workflowslive"
#: zset workflow -> when the leader deletes it.
WORKFLOW_EXPIRY = f"{PREFIX}workflowexpiry"
#: hash tenant -> bytes of the documents and records of its workflows.
WORKFLOW_BYTES = f"{PREFIX}workflowbytes"

#: hash profile -> state|hz|until|hosts: profiles that record or are collected, as workers hear of them.
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
    """Return the id of the job whose hash has this name; None for any other key."""
    return name[len(job("")) :] if name.startswith(job("").encode()) and name.count(b":") == 2 else None


#: hash token -> lo:hi:upto:expiries:errors:granted:lane.
job_lease = Family(f"{PREFIX}job:%s:lease")
#: zset token -> expiry of its lease.
job_leases = Family(f"{PREFIX}job:%s:leases")
#: list of ranges to be leased again.
job_free = Family(f"{PREFIX}job:%s:free")
#: zset of ranges in which the kernel raised -> the time before which each is not tried.
job_retry = Family(f"{PREFIX}job:%s:retry")
#: list of ranges that were given up.
job_dead = Family(f"{PREFIX}job:%s:dead")
#: list of committed partials that are not folded yet.
job_parts = Family(f"{PREFIX}job:%s:parts")
#: Partial into which the parts before were folded.
job_accumulator = Family(f"{PREFIX}job:%s:acc")
#: hash parent -> ok or any: parents that have not ended as the job needs it.
job_needs = Family(f"{PREFIX}job:%s:needs")
#: zset job -> 0 while it waits for this one, 1 while only for others: blocked jobs that come after it.
job_children = Family(f"{PREFIX}job:%s:children")
#: set of jobs that were skipped because of this one.
job_skips = Family(f"{PREFIX}job:%s:skips")
#: hash unit -> artifact with what it left: its log, its outputs.
job_files = Family(f"{PREFIX}job:%s:files")
#: hash artifact -> units of the job that name it: artifacts that the job holds for its output.
job_kept = Family(f"{PREFIX}job:%s:kept")
#: Result as JSON.
job_result = Family(f"{PREFIX}job:%s:result")
#: set of job|token: leases of programs that a runner has.
leased = Family(f"{PREFIX}leased:%s")
#: hash unit -> row of its last failure, JSON: of the first thousand units of a program that failed.
job_failures = Family(f"{PREFIX}job:%s:failures")
#: stream of the job's own events.
job_events = Family(f"{PREFIX}job:%s:ev")
#: stream of the live lines of a program that somebody follows.
output = Family(f"{PREFIX}output:%s")
#: hash of what such a stream holds: bytes, and how many more may come now.
outputs = Family(f"{PREFIX}outputs:%s")
#: hash of a shell beside a running program: whose, where, its state, how far both sides have written and read.
attachment = Family(f"{PREFIX}attachment:%s")
#: stream of what was typed and not read yet; an entry is named by the place of the byte behind it.
attachment_input = Family(f"{PREFIX}attachment_input:%s")
#: stream of what the shell wrote and nobody read yet, named likewise.
attachment_output = Family(f"{PREFIX}attachment_output:%s")
#: zset job -> turn: jobs that a worker should look at.
pending = Family(f"{PREFIX}pending:%s")
#: zset job -> turn: the part of `pending` that is one tenant's.
tenant_pending = Family(f"{PREFIX}tenant_pending:%s:%s")
#: zset job -> workers that hold it: jobs of a tenant that are held.
held = Family(f"{PREFIX}held:%s:%s")
#: set of tenants that may have held jobs in a queue.
holding = Family(f"{PREFIX}holding:%s")
#: zset tenant -> virtual time: tenants with pending jobs in a queue, those first who were given least.
order = Family(f"{PREFIX}order:%s")
#: hash tenant -> virtual time at which what it was given of a priority ends.
finish = Family(f"{PREFIX}finish:%s")
#: Virtual clock of a priority.
virtual = Family(f"{PREFIX}virtual:%s")
#: zset requirements -> jobs of a tenant with them that have not ended.
tenant_shapes = Family(f"{PREFIX}shapes:%s")
#: zset job -> number of its submission: jobs of a tenant that wait or run, without its backlog.
admitted = Family(f"{PREFIX}admitted:%s")
#: zset job -> turn: queued jobs that wait until a cap of their tenant admits them.
backlog = Family(f"{PREFIX}backlog:%s")
#: zset job -> number of its submission: blocked jobs of a tenant.
blocked = Family(f"{PREFIX}blocked:%s")
#: zset job -> turn: jobs of a kind that wait for the next day, because their tenant has used the units of a day.
deferred = Family(f"{PREFIX}deferred:%s:%s")
#: hash job -> bytes stored of it, of a tenant with a cap on them.
stored = Family(f"{PREFIX}stored:%s")
#: Field of SHARES that holds a tenant's further caps.
caps = Family("%s|caps")
#: zset token -> expiry: leases of a tenant's jobs.
lanes = Family(f"{PREFIX}lanes:%s")
#: zset job -> turn: jobs that wait for a worker with this version of their kind.
unsupported = Family(f"{PREFIX}unsupported:%s:%s|%s")
#: Name of the zset that a member of UNSUPPORTED or UNSUPPORTED_PROGRAMS, queue:kind|version, stands for.
unsupported_member = Family(f"{UNSUPPORTED}:%s")
#: zset job -> number of its submission: jobs in this state.
in_state = Family(f"{PREFIX}in:%s")
#: zset worker -> expiry: living workers of this device.
workers_of = Family(f"{PREFIX}workers:%s")
#: hash of what a worker says of itself.
worker = Family(f"{PREFIX}worker:%s")
#: channel, no key: ids of jobs that were cancelled or paused and of which a worker has leases.
stops = Family(f"{PREFIX}stops:%s")
#: Worker that has claimed this GPU.
gpu = Family(f"{PREFIX}gpu:%s")
#: set of the GPUs that a runner has claimed.
claimed = Family(f"{PREFIX}claimed:%s")
#: zset priority -> until when programs (wanted) or kernels (needed) of it are known to wait for this GPU.
gpu_wish = Family(f"{PREFIX}gpu:%s:%s")
#: hash day|what -> what a tenant used; day: a number since 1970, or before.
usage = Family(f"{PREFIX}usage:%s")
#: string job|digest of the request's body, for a day.
idempotency = Family(f"{PREFIX}idem:%s:%s")
#: hash of an API token.
token = Family(f"{PREFIX}token:%s")
#: hash of a browser that is logged in.
session = Family(f"{PREFIX}session:%s")
#: zset session -> expiry: browsers that are logged in with this token.
logins = Family(f"{PREFIX}logins:%s")
#: hash name -> key|changed: a tenant's secrets, the id of the key that opens each, and when it was set.
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
#: hash coordinator -> requests that it has for a service now, those that wait included.
service_asked = Family(f"{PREFIX}serviceasked:%s")
#: hash slot|what -> count: requests to a service and their times, by ten seconds; and the newest slot.
service_figures = Family(f"{PREFIX}servicefigures:%s")
#: hash of what the runner of a replica says of it: its state, where it answers, and with which key.
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
#: hash action, or action/number of an item -> what came of it, JSON, where it is no job.
workflow_records = Family(f"{PREFIX}workflowrecords:%s")
#: set of actions, or action/number, whose jobs are to be tried again.
workflow_retries = Family(f"{PREFIX}workflowretries:%s")
#: zset workflow -> creation: workflows of a tenant.
workflows_of = Family(f"{PREFIX}workflows:%s")
#: hash of a profile.
profile = Family(f"{PREFIX}profile:%s")
#: hash name -> profile: a tenant's profiles.
profiles_of = Family(f"{PREFIX}profiles:%s")
#: hash device -> worker|until: who samples a device.
profile_claims = Family(f"{PREFIX}profile_claims:%s")
#: hash recording -> its row, JSON; recording|what -> who has it, when it was heard of, its file, its end.
profile_recordings = Family(f"{PREFIX}profile_recordings:%s")
#: Token for which a one-time login code with this digest stands.
login = Family(f"{PREFIX}login:%s")
#: list of digests of a token's latest one-time login codes.
codes = Family(f"{PREFIX}codes:%s")
#: hash range lo-hi -> payload: facts that finished jobs left for good.
mark = Family(f"{PREFIX}mark:%s:%s")
#: Turn from which SWEEP goes on to move jobs out of this queue, or its cursor over jobs in this state.
sweep = Family(f"{PREFIX}sweep:%s")
#: Content of a broken key, kept for a week.
quarantined = Family(f"{PREFIX}quarantined:%s")
#: hash of one bell, as RQ keeps its jobs.
rq_job = Family("rq:job:%s")
#: list of the bells that wait in an RQ queue.
rq_queue = Family("rq:queue:%s")
