"""Every key of Redis: the only place in Python that spells one. Lua's own spelling is in the files of `lua/`.

A test compares both with the table in `docs/lease-protocol.md`. Times in keys are milliseconds of Redis' clock.
"""

from __future__ import annotations

PREFIX = "ct:"

#: zset job -> number of its submission: all jobs.
JOBS = f"{PREFIX}jobs"
#: zset job -> when somebody must look at it again.
LATER = f"{PREFIX}later"
#: zset job -> when its timeout is over: running jobs that have one.
DEADLINES = f"{PREFIX}deadlines"
#: zset job -> when SWEEP purges it.
EXPIRY = f"{PREFIX}expiry"
#: set of queue:kind|version under which jobs wait for a worker that can compute them.
LACKED = f"{PREFIX}lacked"
#: hash: swept, when SWEEP ran last; until, before which no lease of a program is taken back.
GRACE = f"{PREFIX}grace"
#: set of the same of queues of runners, with |requirements behind it where jobs have some.
UNFIT = f"{PREFIX}unfit"
#: set of the jobs of replicas of services that wait for a runner.
WAITING_REPLICAS = f"{PREFIX}waiting_replicas"
#: zset job -> since when a runner had no room for it: jobs of programs.
CRAMPED = f"{PREFIX}cramped"
#: hash job -> runner|until|leases|all|looked: the runner that is kept for it.
RESERVED = f"{PREFIX}reserved"
#: zset requirements -> jobs with them that have not ended.
SHAPES = f"{PREFIX}shapes"
#: zset tenant/job|unit -> until when somebody follows this unit of a program.
FOLLOWED = f"{PREFIX}followed"
#: zset tenant/job|unit|attachment -> until when it lasts unless its asker is heard.
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


def job(job_id: str) -> str:
    """Hash of a job's fields."""
    return f"{PREFIX}job:{job_id}"


def job_id(name: bytes) -> bytes | None:
    """Return the id of the job whose hash has this name; None for any other key."""
    return name[len(job("")) :] if name.startswith(job("").encode()) and name.count(b":") == 2 else None


def job_lease(job_id: str) -> str:
    """Hash token -> lo:hi:upto:expiries:errors:granted:lane."""
    return f"{PREFIX}job:{job_id}:lease"


def job_leases(job_id: str) -> str:
    """Zset token -> expiry of its lease."""
    return f"{PREFIX}job:{job_id}:leases"


def job_free(job_id: str) -> str:
    """List of ranges to be leased again."""
    return f"{PREFIX}job:{job_id}:free"


def job_retry(job_id: str) -> str:
    """Zset of ranges in which the kernel raised -> the time before which each is not tried."""
    return f"{PREFIX}job:{job_id}:retry"


def job_dead(job_id: str) -> str:
    """List of ranges that were given up."""
    return f"{PREFIX}job:{job_id}:dead"


def job_parts(job_id: str) -> str:
    """List of committed partials that are not folded yet."""
    return f"{PREFIX}job:{job_id}:parts"


def job_accumulator(job_id: str) -> str:
    """Partial into which the parts before were folded."""
    return f"{PREFIX}job:{job_id}:acc"


def job_needs(job_id: str) -> str:
    """Hash parent -> ok or any: parents that have not ended as the job needs it."""
    return f"{PREFIX}job:{job_id}:needs"


def job_children(job_id: str) -> str:
    """Zset job -> 0 while it waits for this one, 1 while only for others: blocked jobs that come after it."""
    return f"{PREFIX}job:{job_id}:children"


def job_skips(job_id: str) -> str:
    """Set of jobs that were skipped because of this one."""
    return f"{PREFIX}job:{job_id}:skips"


def job_files(job_id: str) -> str:
    """Hash unit -> artifact with what it left: its log, its outputs."""
    return f"{PREFIX}job:{job_id}:files"


def job_kept(job_id: str) -> str:
    """Hash artifact -> units of the job that name it: artifacts that the job holds for its output."""
    return f"{PREFIX}job:{job_id}:kept"


def job_result(job_id: str) -> str:
    """Result as JSON."""
    return f"{PREFIX}job:{job_id}:result"


def leased(worker_id: str) -> str:
    """Set of job|token: leases of programs that a runner has."""
    return f"{PREFIX}leased:{worker_id}"


def job_failures(job_id: str) -> str:
    """Hash unit -> row of its last failure, JSON: of the first thousand units of a program that failed."""
    return f"{PREFIX}job:{job_id}:failures"


def job_events(job_id: str) -> str:
    """Stream of the job's own events."""
    return f"{PREFIX}job:{job_id}:ev"


def output(job_id: str) -> str:
    """Stream of the live lines of a program that somebody follows."""
    return f"{PREFIX}output:{job_id}"


def outputs(job_id: str) -> str:
    """Hash of what such a stream holds: bytes, and how many more may come now."""
    return f"{PREFIX}outputs:{job_id}"


def attachment(attachment_id: str) -> str:
    """Hash of a shell beside a running program: whose, where, its state, how far both sides have written and read."""
    return f"{PREFIX}attachment:{attachment_id}"


def attachment_input(attachment_id: str) -> str:
    """Stream of what was typed and not read yet; an entry is named by the place of the byte behind it."""
    return f"{PREFIX}attachment_input:{attachment_id}"


def attachment_output(attachment_id: str) -> str:
    """Stream of what the shell wrote and nobody read yet, named likewise."""
    return f"{PREFIX}attachment_output:{attachment_id}"


def pending(queue: str) -> str:
    """Zset job -> turn: jobs that a worker should look at."""
    return f"{PREFIX}pending:{queue}"


def turns(queue: str, tenant: str) -> str:
    """Zset job -> turn: the part of `pending` that is one tenant's."""
    return f"{PREFIX}turns:{queue}:{tenant}"


def held(queue: str, tenant: str) -> str:
    """Zset job -> workers that hold it: jobs of a tenant that are held."""
    return f"{PREFIX}held:{queue}:{tenant}"


def holding(queue: str) -> str:
    """Set of tenants that may have held jobs in a queue."""
    return f"{PREFIX}holding:{queue}"


def order(queue: str) -> str:
    """Zset tenant -> virtual time: tenants with pending jobs in a queue, those first who were given least."""
    return f"{PREFIX}order:{queue}"


def finish(priority: str) -> str:
    """Hash tenant -> virtual time at which what it was given of a priority ends."""
    return f"{PREFIX}finish:{priority}"


def virtual(priority: str) -> str:
    """Virtual clock of a priority."""
    return f"{PREFIX}virtual:{priority}"


def tenant_shapes(tenant: str) -> str:
    """Zset requirements -> jobs of a tenant with them that have not ended."""
    return f"{PREFIX}shapes:{tenant}"


def admitted(tenant: str) -> str:
    """Zset job -> number of its submission: jobs of a tenant that wait or run, without its backlog."""
    return f"{PREFIX}admitted:{tenant}"


def backlog(tenant: str) -> str:
    """Zset job -> turn: queued jobs that wait until a cap of their tenant admits them."""
    return f"{PREFIX}backlog:{tenant}"


def blocked(tenant: str) -> str:
    """Zset job -> number of its submission: blocked jobs of a tenant."""
    return f"{PREFIX}blocked:{tenant}"


def deferred(tenant: str, kind: str) -> str:
    """Zset job -> turn: jobs of a kind that wait for the next day, because their tenant has used the units of a day."""
    return f"{PREFIX}deferred:{tenant}:{kind}"


def stored(tenant: str) -> str:
    """Hash job -> bytes stored of it, of a tenant with a cap on them."""
    return f"{PREFIX}stored:{tenant}"


def caps(tenant: str) -> str:
    """Field of SHARES that holds a tenant's further caps."""
    return f"{tenant}|caps"


def lanes(tenant: str) -> str:
    """Zset token -> expiry: leases of a tenant's jobs."""
    return f"{PREFIX}lanes:{tenant}"


def lacked(queue: str, kind: str, version: str | int) -> str:
    """Zset job -> turn: jobs that wait for a worker with this version of their kind."""
    return f"{PREFIX}lacked:{queue}:{kind}|{version}"


def lacked_member(member: str) -> str:
    """Name of the zset that a member of LACKED or UNFIT, queue:kind|version, stands for."""
    return f"{LACKED}:{member}"


def in_state(state: str) -> str:
    """Zset job -> number of its submission: jobs in this state."""
    return f"{PREFIX}in:{state}"


def workers_of(device: str) -> str:
    """Zset worker -> expiry: living workers of this device."""
    return f"{PREFIX}workers:{device}"


def worker(worker_id: str) -> str:
    """Hash of what a worker says of itself."""
    return f"{PREFIX}worker:{worker_id}"


def stops(worker_id: str) -> str:
    """Channel, no key: ids of jobs that were cancelled or paused and of which a worker has leases."""
    return f"{PREFIX}stops:{worker_id}"


def gpu(uuid: str) -> str:
    """Worker that has claimed this GPU."""
    return f"{PREFIX}gpu:{uuid}"


def claimed(worker_id: str) -> str:
    """Set of the GPUs that a runner has claimed."""
    return f"{PREFIX}claimed:{worker_id}"


def gpu_wish(uuid: str, wish: str) -> str:
    """Zset priority -> until when programs (wanted) or kernels (needed) of it are known to wait for this GPU."""
    return f"{PREFIX}gpu:{uuid}:{wish}"


def usage(tenant: str) -> str:
    """Hash day|what -> what a tenant used; day: a number since 1970, or before."""
    return f"{PREFIX}usage:{tenant}"


def idempotency(owner: str, key: str) -> str:
    """String job|digest of the request's body, for a day."""
    return f"{PREFIX}idem:{owner}:{key}"


def token(token_id: str) -> str:
    """Hash of an API token."""
    return f"{PREFIX}token:{token_id}"


def session(session_id: str) -> str:
    """Hash of a browser that is logged in."""
    return f"{PREFIX}session:{session_id}"


def logins(token_id: str) -> str:
    """Zset session -> expiry: browsers that are logged in with this token."""
    return f"{PREFIX}logins:{token_id}"


def secrets(tenant: str) -> str:
    """Hash name -> key|changed: a tenant's secrets, the id of the key that opens each, and when it was set."""
    return f"{PREFIX}secrets:{tenant}"


def secret(tenant: str) -> str:
    """Hash name -> key.sealed: the values of a tenant's secrets, encrypted."""
    return f"{PREFIX}secret:{tenant}"


def schedule(schedule_id: str) -> str:
    """Hash of a schedule."""
    return f"{PREFIX}schedule:{schedule_id}"


def schedules_of(tenant: str) -> str:
    """Hash name -> schedule: a tenant's schedules."""
    return f"{PREFIX}schedules:{tenant}"


def service(service_id: str) -> str:
    """Hash of a service."""
    return f"{PREFIX}service:{service_id}"


def services_of(tenant: str) -> str:
    """Hash name -> service: a tenant's services."""
    return f"{PREFIX}services:{tenant}"


def service_replicas(service_id: str) -> str:
    """Hash number -> generation|since|stopping: replicas of a service."""
    return f"{PREFIX}servicereplicas:{service_id}"


def service_asked(service_id: str) -> str:
    """Hash coordinator -> requests that it has for a service now, those that wait included."""
    return f"{PREFIX}serviceasked:{service_id}"


def service_figures(service_id: str) -> str:
    """Hash slot|what -> count: requests to a service and their times, by ten seconds; and the newest slot."""
    return f"{PREFIX}servicefigures:{service_id}"


def replica(job_id: str) -> str:
    """Hash of what the runner of a replica says of it: its state, where it answers, and with which key."""
    return f"{PREFIX}replica:{job_id}"


def tunnel(worker: str) -> str:
    """Hash of the coordinator to which a runner has a tunnel: where others reach it, with which key, on which host."""
    return f"{PREFIX}tunnel:{worker}"


def replica_busy(job_id: str) -> str:
    """Hash coordinator -> requests that it has passed on to a replica and that have not ended."""
    return f"{PREFIX}replicabusy:{job_id}"


def inference_counted(coordinator: str) -> str:
    """Number of the last batch of requests to models that a coordinator had counted; for an hour."""
    return f"{PREFIX}inferencecounted:{coordinator}"


def delivery(delivery_id: str) -> str:
    """Hash of a delivery of a webhook."""
    return f"{PREFIX}delivery:{delivery_id}"


def outbox(place: str) -> str:
    """Zset delivery -> when it is due: those of a tenant to one scheme, host and port."""
    return f"{PREFIX}outbox:{place}"


def deliveries_of(tenant: str, state: str) -> str:
    """Zset delivery -> since when: a tenant's deliveries in this state, of those that have ended the latest."""
    return f"{PREFIX}deliveries:{tenant}:{state}"


def files(tenant: str) -> str:
    """Hash sha256 -> size:references:objects: a tenant's files."""
    return f"{PREFIX}files:{tenant}"


def parts(tenant: str, sha256: str) -> str:
    """Hash number -> object, and its size: parts of a file that is not whole yet."""
    return f"{PREFIX}parts:{tenant}:{sha256}"


def artifact(tenant: str, artifact_id: str) -> str:
    """Hash of an artifact: bytes, files, when it was created, its manifest."""
    return f"{PREFIX}artifact:{tenant}:{artifact_id}"


def artifacts(tenant: str) -> str:
    """Zset artifact -> creation: a tenant's artifacts that somebody holds."""
    return f"{PREFIX}artifacts:{tenant}"


def holders(tenant: str, artifact_id: str) -> str:
    """Set of what keeps an artifact: kept, name:NAME, job:ID."""
    return f"{PREFIX}holders:{tenant}:{artifact_id}"


def names(tenant: str) -> str:
    """Hash name -> artifact."""
    return f"{PREFIX}names:{tenant}"


def workflow(workflow_id: str) -> str:
    """Hash of a workflow."""
    return f"{PREFIX}workflow:{workflow_id}"


def workflow_document(workflow_id: str) -> str:
    """Actions of a workflow, as JSON in zlib."""
    return f"{PREFIX}workflowdocument:{workflow_id}"


def workflow_jobs(workflow_id: str) -> str:
    """Hash action, or action/number of an item -> job."""
    return f"{PREFIX}workflowjobs:{workflow_id}"


def workflow_records(workflow_id: str) -> str:
    """Hash action, or action/number of an item -> what came of it, JSON, where it is no job."""
    return f"{PREFIX}workflowrecords:{workflow_id}"


def workflow_retries(workflow_id: str) -> str:
    """Set of actions, or action/number, whose jobs are to be tried again."""
    return f"{PREFIX}workflowretries:{workflow_id}"


def workflows_of(tenant: str) -> str:
    """Zset workflow -> creation: workflows of a tenant."""
    return f"{PREFIX}workflows:{tenant}"


def profile(profile_id: str) -> str:
    """Hash of a profile."""
    return f"{PREFIX}profile:{profile_id}"


def profiles_of(tenant: str) -> str:
    """Hash name -> profile: a tenant's profiles."""
    return f"{PREFIX}profiles:{tenant}"


def profile_claims(profile_id: str) -> str:
    """Hash device -> worker|until: who samples a device."""
    return f"{PREFIX}profile_claims:{profile_id}"


def profile_recordings(profile_id: str) -> str:
    """Hash recording -> its row, JSON; recording|what -> who has it, when it was heard of, its file, its end."""
    return f"{PREFIX}profile_recordings:{profile_id}"


def login(digest: str) -> str:
    """Token for which a one-time login code with this digest stands."""
    return f"{PREFIX}login:{digest}"


def codes(token_id: str) -> str:
    """List of digests of a token's latest one-time login codes."""
    return f"{PREFIX}codes:{token_id}"


def mark(kind: str, name: str) -> str:
    """Hash range lo-hi -> payload: facts that finished jobs left for good."""
    return f"{PREFIX}mark:{kind}:{name}"


def sweep(queue: str) -> str:
    """Turn from which SWEEP goes on to move jobs out of this queue, or its cursor over jobs in this state."""
    return f"{PREFIX}sweep:{queue}"


def aside(key: str) -> str:
    """Content of a broken key, kept for a week."""
    return f"{PREFIX}aside:{key}"


def rq_job(bell_id: str) -> str:
    """Hash of one bell, as RQ keeps its jobs."""
    return f"rq:job:{bell_id}"


def rq_queue(queue: str) -> str:
    """List of the bells that wait in an RQ queue."""
    return f"rq:queue:{queue}"
