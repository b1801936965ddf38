"""Answers about the audit log, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, required


class AuditPosition(Answer):
    seq: int = required("Number of an entry; 0 before the first.")
    hash: str


class AuditPart(Answer):
    lines: list[str] = required(
        "Entries, oldest first, each as the text of a JSON object that its hash covers. Where the entries before are "
        'not in the answer, the first line is {"after": N, "hash": H}, the last of them.'
    )
    head: AuditPosition = required("The last entry of the log.")
    dropped: AuditPosition = required("The last entry that Redis no longer keeps; AUDIT_FILE has it and those before.")
    exported: int = required("The number of the last entry in AUDIT_FILE; 0 without one.")
