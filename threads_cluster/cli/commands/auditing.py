"""The command `cluster audit`, which lists and verifies the entries of the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from threads_cluster import errors
from threads_cluster.cli import audit, show
from threads_cluster.cli.session import Session

#: Number of hexadecimal digits in the hash of a line in AUDIT_FILE. Hashes of entries in Redis have 40 digits.
_SHA256 = 64
#: Number of audit log entries per request.
_PAGE = 1000


class Altered(errors.ClientError):
    """The audit log was altered after it was written."""

    exit_code = errors.ALTERED


class Unreadable(errors.ClientError):
    """The file with the audit log could not be read."""

    exit_code = errors.REFUSED


def listing(session: Session, after: int | None, limit: int, *, as_json: bool) -> None:
    """Print the last entries of the audit log, or the entries after a number."""
    entries = [entry for entry in map(json.loads, _lines(session, after, limit)) if "seq" in entry]
    show.listing(entries, _COLUMNS, as_json=as_json, none="No matching entries. List the newest with: cluster audit")


def _lines(session: Session, after: int | None, limit: int) -> list[str]:
    lines: list[str] = session.cluster.audit(after=after, limit=limit)["lines"]
    return lines


def _when(entry: dict[str, Any]) -> str:
    return datetime.fromtimestamp(entry["t"] / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_COLUMNS: show.Columns = {
    "number": "seq",
    "when": _when,
    "tenant": lambda entry: entry["tenant"] or "-",
    "token": lambda entry: entry["token"] or "-",
    "action": "action",
    "subject": "subject",
    "outcome": lambda entry: f"{entry['outcome']} {entry['count']} times" if "count" in entry else entry["outcome"],
}


def verify(session: Session, file: str | None, head: str, *, as_json: bool) -> None:
    """Verify an audit log in a file or in the cluster, and print its last hash. Raises Altered with the line number."""
    if file is None and len(head) == _SHA256:
        raise errors.BadArgument(
            "this is the head hash of a file; verify the file with: cluster audit FILE --head HASH", "head"
        )
    try:
        if file is None:
            verified = audit.Chain(_all(session)).verify(head)
        else:
            with Path(file).open("rb") as stream:
                verified = audit.Chain(_complete_lines(stream)).verify(head)
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from None
    except audit.Tampered as error:
        raise Altered(f"{file or 'the log'}: {error}") from None
    if as_json:
        show.json_line({"entries": [verified.first, verified.seq], "head": verified.head})
        return
    if not verified.lines:
        show.line("no entries")
        return
    show.line(f"entries {verified.first} to {verified.seq} are unchanged")
    show.line(f"head {verified.head}")
    show.say(f"Store the head elsewhere. To verify later: cluster audit {file or '--verify'} --head {verified.head}")


def _all(session: Session) -> Iterator[bytes]:
    """Yield every line of the audit log that the cluster stores, oldest first."""
    after, count = 0, _PAGE
    while count >= _PAGE:
        lines = _lines(session, after, _PAGE)
        yield from (line.encode() for line in lines)
        last = json.loads(lines[-1]) if lines else {}
        after, count = last.get("seq", last.get("after", after)), sum(line.startswith('{"seq"') for line in lines)


def _complete_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file without newlines. A last line without a newline is incomplete and only reported."""
    for number, line in enumerate(stream, 1):
        if line.endswith(b"\n"):
            yield line[:-1]
        else:
            show.say(
                f"line {number} is incomplete and was not verified; "
                "a coordinator completes it, unless the file is a copy"
            )
