"""Types of responses about the audit log."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, describe


class AuditPosition(Answer):
    seq: Annotated[Count, describe("Number of an entry; 0 before the first entry.")]
    hash: str


class AuditPart(Answer):
    lines: Annotated[
        Many[str],
        describe(
            "Entries, oldest first, each as the JSON text covered by its hash. If earlier entries are "
            'omitted, the first line is {"after": N, "hash": H} and describes the last omitted entry.'
        ),
    ]
    head: Annotated[AuditPosition, describe("The last entry of the log.")]
    dropped: Annotated[
        AuditPosition, describe("The last entry deleted from Redis. AUDIT_FILE contains it and all earlier entries.")
    ]
    exported: Annotated[Count, describe("Number of the last entry in AUDIT_FILE; 0 without AUDIT_FILE.")]
