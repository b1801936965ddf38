"""Models of attachment request bodies, shared by the routes for users and for workers."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from jobs import errors
from jobs.models import MAX_UNITS
from jobs.store.attachments import MAX_BYTES

#: Maximum size of a request body in bytes.
MOST_BODY = 128 << 10
#: Maximum time in seconds that a call waits.
MOST_SECONDS = 20.0
#: Maximum number of arguments of a command.
#: Maximum total size in bytes of a command's arguments.
_MOST_WORDS, _MOST_COMMAND = 1000, 32 << 10

AttachmentId = Annotated[
    str,
    Path(pattern=r"^[0-9a-f]{32}$", description="Attachment ID: 32 hexadecimal digits, chosen by the client."),
]
Place = Annotated[int, Field(ge=0, le=MAX_UNITS)]
Lines = Annotated[int, Field(ge=1, le=10_000)]


def _check_command(words: list[str] | None) -> list[str] | None:
    if words and (not words[0] or any("\0" in word for word in words)):
        raise ValueError("must start with a program name, and must not contain NUL")
    if sum(len(word.encode(errors="replace")) for word in words or ()) > _MOST_COMMAND:
        raise ValueError(f"must have at most {_MOST_COMMAND} bytes")
    return words


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Terminal(_Body):
    """Type and size of the user's terminal."""

    rows: Lines
    columns: Lines
    name: str = Field("xterm", pattern=r"^[A-Za-z0-9._+-]{1,64}$", description="Value of TERM.")


class NewShell(_Body):
    """Request body that opens a shell."""

    unit: Place
    command: Annotated[list[str] | None, AfterValidator(_check_command)] = Field(
        None, min_length=1, max_length=_MOST_WORDS, description="Command to run; null: a shell."
    )
    terminal: Terminal | None = Field(
        None, description="Size and type of the terminal; null: pipes without a terminal."
    )


class ShellInput(_Body):
    """Request body with input for a shell."""

    offset: Place = Field(description="Offset of the first byte within the whole input.")
    data: str = Field("", max_length=2 * MAX_BYTES, description=f"Input in base64, at most {MAX_BYTES} bytes.")
    closed: bool = Field(False, description="True: the input ends after these bytes.")
    rows: Lines | None = None
    columns: Lines | None = None


def decode_base64(text: str) -> bytes:
    """Decode base64 text. Raise InvalidRequest if it is invalid, or TooLarge if it exceeds MAX_BYTES."""
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise errors.InvalidRequest("data: must be bytes in base64", field="data") from None
    if len(data) > MAX_BYTES:
        raise errors.TooLarge(f"data: has more than {MAX_BYTES} bytes; send the rest in another call", field="data")
    return data


def serialize_size(asked: Any) -> str:
    """Return the terminal size as `ROWS COLUMNS`, or an empty string unless both are set."""
    return f"{asked.rows} {asked.columns}" if asked.rows and asked.columns else ""
