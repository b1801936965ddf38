"""Rows of the read model are what the API's description says of them."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, is_typeddict

import pytest
from pydantic import BaseModel

from coordinator.access import rows as access_rows
from coordinator.access import schemas as access_schemas
from coordinator.artifacts import rows as artifact_rows
from coordinator.artifacts import schemas as artifact_schemas
from coordinator.attachments import rows as attachment_rows
from coordinator.attachments import schemas as attachment_schemas
from coordinator.audit import rows as audit_rows
from coordinator.audit import schemas as audit_schemas
from coordinator.events import rows as event_rows
from coordinator.events import schemas as event_schemas
from coordinator.fleet import rows as fleet_rows
from coordinator.fleet import schemas as fleet_schemas
from coordinator.hosts import rows as host_rows
from coordinator.hosts import schemas as host_schemas
from coordinator.jobs import rows as job_rows
from coordinator.jobs import schemas as job_schemas
from coordinator.logs import rows as log_rows
from coordinator.logs import schemas as log_schemas
from coordinator.models import rows as model_rows
from coordinator.models import schemas as model_schemas
from coordinator.secrets import rows as secret_rows
from coordinator.secrets import schemas as secret_schemas
from coordinator.telemetry import rows as telemetry_rows
from coordinator.telemetry import schemas as telemetry_schemas
from coordinator.tenants import rows as tenant_rows
from coordinator.tenants import schemas as tenant_schemas
from coordinator.usage import rows as usage_rows
from coordinator.usage import schemas as usage_schemas
from coordinator.workflows import rows as workflow_rows
from coordinator.workflows import schemas as workflow_schemas

#: Each row and its description.
PAIRS: dict[type, type[BaseModel]] = {
    access_rows.TokenRow: access_schemas.Token,
    access_rows.SessionRow: access_schemas.Session,
    secret_rows.SecretRow: secret_schemas.Secret,
    artifact_rows.ArtifactRow: artifact_schemas.Artifact,
    model_rows.ModelRow: model_schemas.Model,
    model_rows.ChunkRow: model_schemas.Chunk,
    attachment_rows.AttachmentRow: attachment_schemas.Attachment,
    attachment_rows.InputRow: attachment_schemas.Input,
    attachment_rows.OutputRow: attachment_schemas.Output,
    job_rows.ShareRow: job_schemas.Share,
    job_rows.UsageRow: job_schemas.Usage,
    job_rows.JobRow: job_schemas.Job,
    job_rows.RelatedRow: job_schemas.Related,
    job_rows.ParentRow: job_schemas.Parent,
    job_rows.RelationsRow: job_schemas.Relations,
    job_rows.TaskRow: job_schemas.Task,
    job_rows.DeadRangeRow: job_schemas.DeadRange,
    job_rows.DeadRow: job_schemas.Dead,
    job_rows.JobsPage: job_schemas.Jobs,
    job_rows.SubmittedRow: job_schemas.Submitted,
    job_rows.MarkRangeRow: job_schemas.MarkRange,
    job_rows.MarkRow: job_schemas.Mark,
    job_rows.KindRow: job_schemas.Kind,
    job_rows.UnitRow: job_schemas.Unit,
    job_rows.UnitsPage: job_schemas.Units,
    job_rows.UnitStatesRow: job_schemas.UnitStates,
    fleet_rows.GpuRow: fleet_schemas.Gpu,
    fleet_rows.OfferRow: fleet_schemas.Offer,
    fleet_rows.OfferedGpuRow: fleet_schemas.OfferedGpu,
    fleet_rows.FleetGpuRow: fleet_schemas.FleetGpu,
    fleet_rows.DiskRow: fleet_schemas.Disk,
    fleet_rows.WorkerRow: fleet_schemas.Worker,
    fleet_rows.CardRow: fleet_schemas.Card,
    host_rows.DeviceRow: host_schemas.Device,
    host_rows.HostRow: host_schemas.Host,
    host_rows.HostDetailRow: host_schemas.HostDetail,
    fleet_rows.QueueRow: fleet_schemas.Queue,
    fleet_rows.WorkerCountsRow: fleet_schemas.WorkerCounts,
    fleet_rows.StatusRow: fleet_schemas.Status,
    log_rows.OutputRow: log_schemas.Output,
    log_rows.DroppedRow: log_schemas.Dropped,
    log_rows.EndRow: log_schemas.End,
    telemetry_rows.GpuFiguresRow: telemetry_schemas.GpuFigures,
    telemetry_rows.GpuNowRow: telemetry_schemas.GpuNow,
    telemetry_rows.GpuThenRow: telemetry_schemas.GpuThen,
    telemetry_rows.GpuSummaryRow: telemetry_schemas.GpuSummary,
    telemetry_rows.GpuStatusRow: telemetry_schemas.GpuStatus,
    telemetry_rows.AlertRow: telemetry_schemas.Alert,
    telemetry_rows.BinsRow: telemetry_schemas.Bins,
    telemetry_rows.HistoryRow: telemetry_schemas.History,
    telemetry_rows.SpanLaneRow: telemetry_schemas.SpanLane,
    telemetry_rows.SpanRow: telemetry_schemas.Span,
    telemetry_rows.SpansRow: telemetry_schemas.Spans,
    telemetry_rows.SampleRow: telemetry_schemas.Sample,
    telemetry_rows.MetricRow: telemetry_schemas.Metric,
    tenant_rows.TenantRow: tenant_schemas.Tenant,
    event_rows.SnapshotRow: event_schemas.Snapshot,
    audit_rows.AuditPositionRow: audit_schemas.AuditPosition,
    audit_rows.AuditPartRow: audit_schemas.AuditPart,
    usage_rows.TenantUsageRow: usage_schemas.TenantUsage,
    workflow_rows.WorkflowRow: workflow_schemas.Workflow,
    workflow_rows.CourseRow: workflow_schemas.Course,
    workflow_rows.WorkflowsPage: workflow_schemas.Workflows,
    workflow_rows.ActionRow: workflow_schemas.Action,
    workflow_rows.ActionDetailRow: workflow_schemas.ActionDetail,
    workflow_rows.ItemsRow: workflow_schemas.Items,
    workflow_rows.ItemRow: workflow_schemas.Item,
    workflow_rows.ComplaintRow: workflow_schemas.Complaint,
    workflow_rows.ValidationRow: workflow_schemas.Validation,
    workflow_rows.RetriedRow: workflow_schemas.Retried,
}
#: What routes add to a row before they send it.
ADDED = {job_rows.SubmittedRow: {"result"}}
MODULES = [
    access_rows, tenant_rows, secret_rows, artifact_rows, job_rows, fleet_rows, host_rows, telemetry_rows, event_rows,
    audit_rows, usage_rows, attachment_rows, workflow_rows,
]  # fmt: skip


def plain(hint: Any) -> Any:
    """A type with rows as their descriptions and words as str, to compare; unions as sets."""
    if hint in PAIRS:
        return PAIRS[hint]
    if get_origin(hint) is NotRequired:
        return union(get_args(hint)[0], type(None))
    if get_origin(hint) in (Union, types.UnionType):
        return union(*get_args(hint))
    if get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, Enum)):
        return str
    if get_origin(hint) in (list, dict, tuple):
        return (get_origin(hint), *map(plain, get_args(hint)))
    return hint


def union(*parts: Any) -> frozenset[Any]:
    flat = map(plain, parts)
    return frozenset().union(*(part if isinstance(part, frozenset) else {part} for part in flat))


def of_row(row: type) -> dict[str, tuple[Any, bool]]:
    """Type of each key, and whether it is always there."""
    hints = typing.get_type_hints(row, include_extras=True)
    return {name: (plain(hint), get_origin(hint) is not NotRequired) for name, hint in hints.items()}


def of_model(model: type[BaseModel]) -> dict[str, tuple[Any, bool]]:
    """The same of a description: what has a default is left out where it is not known."""
    fields = model.model_fields.items()
    return {field.alias or name: (plain(field.annotation), field.is_required()) for name, field in fields}


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row.__name__)
def test_a_row_is_as_described(row: type) -> None:
    described = {name: of for name, of in of_model(PAIRS[row]).items() if name not in ADDED.get(row, ())}
    assert of_row(row) == described


def test_every_row_has_a_description() -> None:
    declared = {row for module in MODULES for row in vars(module).values() if is_typeddict(row)}
    assert declared - {job_rows.ResultHead} <= PAIRS.keys()
    missing = of_row(job_rows.ResultHead).keys() ^ of_model(job_schemas.Result).keys()
    assert missing == {"result"}
