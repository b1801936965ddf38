"""Typed access to Redis, with one class per subject. All classes share one client.

`docs/lease-protocol.md` specifies the keys and functions. Only RQ's worker (`wakeups.py`) has its own connection.
"""

from __future__ import annotations

from jobs.store.artifacts import Artifacts
from jobs.store.attachments import Attachments
from jobs.store.events import Events
from jobs.store.files import Files
from jobs.store.fleet import Fleet
from jobs.store.fleet_reads import FleetReads
from jobs.store.profiles import Profiles
from jobs.store.repairs import Repairs
from jobs.store.schedules import Schedules
from jobs.store.server.aof import Aof
from jobs.store.server.clock import Clock
from jobs.store.server.connection import Client
from jobs.store.server.functions import LIMITS, Functions, Limits
from jobs.store.server.libraries import Libraries
from jobs.store.server.wire import Wire
from jobs.store.services import Services
from jobs.store.telemetry import Telemetry
from jobs.store.tenancy.audit_log import AuditLog
from jobs.store.tenancy.secrets import Secrets
from jobs.store.tenancy.stored_bytes import StoredBytes
from jobs.store.tenancy.tenants import Tenants
from jobs.store.tenancy.tokens import Tokens
from jobs.store.tenancy.usage import Usage
from jobs.store.webhooks import Webhooks
from jobs.store.work.demand import DemandReads
from jobs.store.work.job_reads import JobReads
from jobs.store.work.jobs import Jobs
from jobs.store.work.lease_store import Heard, Pulse
from jobs.store.work.leases import Leases
from jobs.store.work.live_output import LiveOutput
from jobs.store.work.marks import Marks
from jobs.store.work.outputs import Outputs
from jobs.store.work.relations import Relations
from jobs.store.work.results import Results
from jobs.store.work.slots import Slots
from jobs.store.work.unit_reads import UnitReads
from jobs.store.workflows import Workflows

__all__ = ["Store"]


class Store:
    """Typed access to one Redis server. Each attribute covers one subject, such as jobs or leases.

    `replicas` is the number of Redis replicas that must confirm a change. `loads` is True if this process loads missing
    functions into Redis; only coordinators do. Only tests set `clock` (Lua text that defines now()) and `limits`.
    """

    def __init__(
        self,
        client: Client,
        *,
        replicas: int = 0,
        loads: bool = True,
        clock: str | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.functions = Functions(client, replicas=replicas, loads=loads, clock=clock, limits=limits)
        #: Connection to Redis for calls within an event loop. The first call opens the connection.
        self.wire = Wire(client)
        self.clock = Clock(self.functions)
        self.jobs = Jobs(self.functions)
        self.job_reads = JobReads(self.functions)
        self.relations = Relations(self.functions)
        self.unit_reads = UnitReads(self.functions)
        self.slots = Slots(self.functions)
        self.leases = Leases(self.functions)
        self.tenants = Tenants(self.functions)
        self.stored_bytes = StoredBytes(self.functions)
        self.results = Results(self.functions)
        self.marks = Marks(self.functions)
        self.fleet = Fleet(self.functions)
        self.fleet_reads = FleetReads(self.functions)
        self.demand = DemandReads(self.functions)
        self.events = Events(self.functions)
        self.telemetry = Telemetry(self.functions)
        self.repairs = Repairs(self.functions)
        self.libraries = Libraries(self.functions)
        self.aof = Aof(self.functions)
        self.audit_log = AuditLog(self.functions)
        self.usage = Usage(self.functions)
        self.tokens = Tokens(self.functions)
        self.secrets = Secrets(self.functions)
        self.schedules = Schedules(self.functions)
        self.services = Services(self.functions)
        self.webhooks = Webhooks(self.functions)
        self.files = Files(self.functions)
        self.artifacts = Artifacts(self.functions)
        self.outputs = Outputs(self.functions)
        self.live_output = LiveOutput(self.functions)
        self.attachments = Attachments(self.functions)
        self.workflows = Workflows(self.functions)
        self.profiles = Profiles(self.functions)

    @property
    def client(self) -> Client:
        """Return the Redis client that all parts share. Only modules of jobs/store use it."""
        return self.functions.client

    def pulse(self, pulse: Pulse) -> Heard:
        """Extend a worker's leases and its slot, and record the worker's heartbeat."""
        leases = tuple(self.leases.heartbeat(job, token, upto) for job, token, upto in pulse.leases)
        if pulse.slot:
            self.slots.hold(pulse.worker)
        word = self.fleet.heartbeat(pulse.worker, pulse.born, pulse.row())
        return Heard(leases=leases, word=word, profiles=self.profiles.live())

    def drop_idle_connections(self) -> None:
        """Close all connections to Redis that are not in use."""
        self.client.connection_pool.disconnect(inuse_connections=False)
