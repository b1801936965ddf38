"""Responses about the audit log."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, describe


class AuditPosition(Answer):
    seq: Annotated[Count, describe("Number of an entry; 0 before the first.")]
    hash: str


class AuditPart(Answer):
    lines: Annotated[
        Many[str],
        describe(
            "Entries, oldest first, each as the text of a JSON object that its hash covers. Where the "
            'entries before are not in the answer, the first line is {"after": N, "hash": H}, the last of them.'
        ),
    ]
    head: Annotated[AuditPosition, describe("The last entry of the log.")]
    dropped: Annotated[
        AuditPosition, describe("The last entry that Redis no longer keeps; AUDIT_FILE has it and those before.")
    ]
    exported: Annotated[Count, describe("The number of the last entry in AUDIT_FILE; 0 without one.")]
