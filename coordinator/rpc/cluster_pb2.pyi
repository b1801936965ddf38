from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("type", "parameters_json", "priority", "device", "gpu_preferred", "idempotency_key", "max_running", "hold", "timeout_seconds", "notify", "after", "after_any", "wait_seconds", "name", "tags")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_JSON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GPU_PREFERRED_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_ANY_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    type: str
    parameters_json: str
    priority: str
    device: str
    gpu_preferred: bool
    idempotency_key: str
    max_running: int
    hold: bool
    timeout_seconds: float
    notify: str
    after: _containers.RepeatedScalarFieldContainer[str]
    after_any: _containers.RepeatedScalarFieldContainer[str]
    wait_seconds: float
    name: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type: _Optional[str] = ..., parameters_json: _Optional[str] = ..., priority: _Optional[str] = ..., device: _Optional[str] = ..., gpu_preferred: _Optional[bool] = ..., idempotency_key: _Optional[str] = ..., max_running: _Optional[int] = ..., hold: _Optional[bool] = ..., timeout_seconds: _Optional[float] = ..., notify: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., after_any: _Optional[_Iterable[str]] = ..., wait_seconds: _Optional[float] = ..., name: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("job_id", "status", "estimated_wait_seconds", "notes", "result_json")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: str
    estimated_wait_seconds: float
    notes: _containers.RepeatedScalarFieldContainer[str]
    result_json: str
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[str] = ..., estimated_wait_seconds: _Optional[float] = ..., notes: _Optional[_Iterable[str]] = ..., result_json: _Optional[str] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("job_id", "wait_seconds")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    wait_seconds: float
    def __init__(self, job_id: _Optional[str] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("job_id", "type", "state", "progress", "error", "row_json")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ROW_JSON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    type: str
    state: str
    progress: float
    error: str
    row_json: str
    def __init__(self, job_id: _Optional[str] = ..., type: _Optional[str] = ..., state: _Optional[str] = ..., progress: _Optional[float] = ..., error: _Optional[str] = ..., row_json: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("job_id", "type", "result_json")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    type: str
    result_json: str
    def __init__(self, job_id: _Optional[str] = ..., type: _Optional[str] = ..., result_json: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ("status_json",)
    STATUS_JSON_FIELD_NUMBER: _ClassVar[int]
    status_json: str
    def __init__(self, status_json: _Optional[str] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("job_id", "topics", "after")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    topics: str
    after: str
    def __init__(self, job_id: _Optional[str] = ..., topics: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "type", "data_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    data_json: str
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., data_json: _Optional[str] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ("names", "interval_seconds")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    names: str
    interval_seconds: float
    def __init__(self, names: _Optional[str] = ..., interval_seconds: _Optional[float] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("time", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TIME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    time: int
    values: _containers.ScalarMap[str, float]
    def __init__(self, time: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...
