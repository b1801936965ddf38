"""The never rules that ruff and import-linter cannot see, and a violation of each rule that its check must catch.

What ruff, import-linter and this file forbid is listed in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import gc
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

import pytest

from jobs import metrics
from tests.packages import ALL

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

METRIC = re.compile(
    "|".join([*(re.escape(metric.name) for metric in metrics.ALL), r"cluster_\w+_(total|seconds|bytes|ratio|info)"])
)
QUEUE = re.compile(r"(gpu|any|cpu)\.(interactive|high|normal|low)")
#: Comments that prevent ruff from formatting a line or a block.
UNFORMATTED = re.compile(r"# (?:fmt|yapf): ?(?:skip|off)")
#: Starts of docstrings that omit the described object.
ELLIPTIC = re.compile(r"(Of|As|What)\b")
NAMELESS = frozenset({"utils", "util", "common", "helpers", "base", "manager", "misc"})
#: Redis commands whose names have no other meaning.
REDIS_CALL = re.compile(
    r"pipeline|register_script|script_load|evalsha|fcall|getrange|strlen|mget|scan_iter|hincrby|hget(all)?|hm?set|hmget|hdel"
    r"|hlen|zadd|zrem|zcard|zrank|zcount|zscore|zrange\w*|zrevrange\w*|xadd|xlen|xread|xtrim|x(rev)?range|sadd|srem|scard"
    r"|smembers|sismember|[lr]push|[lr]pop|llen|lrange|ltrim|waitaof|pttl|pexpire"
)
#: Modules that ruff exempts from all banned imports, each because of one of them.
EXEMPT = frozenset(
    {"jobs/settings.py", "threads_cluster/settings.py", "jobs/store/work/wakeups.py", "jobs/store/server/connection.py"}
)
PICKLES = frozenset({"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"})
#: Modules that pickle calls of Python functions. Servers never load these pickles.
PICKLING = frozenset({f"threads_cluster/client/calling/{name}.py" for name in ("pickling", "program")})


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Disable garbage collection. On Python 3.11, a finalizer that logs a traceback makes ast.parse fail."""
    gc.disable()
    yield
    gc.enable()


# -- what is loaded ---------------------------------------------------------------------------------------------------


def loaded(imports: str, forbidden: set[str]) -> set[str]:
    """Return the modules of `forbidden` that a new interpreter has loaded after running `imports`."""
    program = f"import sys\n{imports}\nprint(*({forbidden!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


DEFINITIONS = "from jobs.kinds import registry\nfor kind in registry.names(): registry.definition(kind)"


@pytest.mark.parametrize(
    ("imports", "forbidden"),
    [
        pytest.param(
            f"import coordinator.app, coordinator.__main__\n{DEFINITIONS}", {"numpy", "numba", "cupy"}, id="coordinator"
        ),
        pytest.param("import cpu_worker.__main__", {"numba", "cupy"}, id="parent of a CPU worker"),
        pytest.param("import cpu_worker.child", {"redis", "rq", "structlog"}, id="lane of a CPU worker"),
        pytest.param("import gpu_worker.__main__", {"numba", "cupy", "pynvml"}, id="GPU worker before it chose a GPU"),
        pytest.param(
            "import threads_cluster.cli.main", {"redis", "rq", "fastapi", "numpy", "numba", "cupy"}, id="client"
        ),
    ],
)
def test_an_image_never_loads_what_is_not_its_business(imports: str, forbidden: set[str]) -> None:
    found = loaded(imports, forbidden)
    assert not found, f"importing it loads {', '.join(found)}: import that where it is used, in a kernel"


def test_a_forbidden_load_is_seen_through_another_module() -> None:
    assert loaded("import concurrent.futures", {"logging", "numpy"}) == {"logging"}


# -- what is spelled --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a module. All rules for a module share one parse."""
    return list(ast.walk(ast.parse(source)))


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Return the string constants with their lines, without docstrings."""
    said = {id(node.value) for node in nodes(source) if isinstance(node, ast.Expr)}
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Return the imported modules and names with dots, and attributes of os, with their lines."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield node.lineno, f"os.{node.attr}"


def redis_complaints(path: str, source: str) -> list[str]:
    """List the Redis commands and keys in a module that belong into jobs/store."""
    found = []
    if path != "jobs/store/keys.py":
        keys = [(line, text) for line, text in strings(source) if text.startswith(("ct:", "rq:"))]
        found += [f"{path}:{line}: {text!r} is a key of Redis: use jobs.store.keys" for line, text in keys]
    if not path.startswith("jobs/store/"):
        calls = redis_calls(source)
        found += [f"{path}:{line}: .{name} asks Redis: add a method to a part of jobs/store" for line, name in calls]
    return found


def redis_calls(source: str) -> Iterator[tuple[int, str]]:
    """Return the attributes through which a Redis client is reached or called, with their lines."""
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and (node.attr == "client" or REDIS_CALL.fullmatch(node.attr)):
            of_a_request = isinstance(node.value, ast.Name) and node.value.id == "request"
            if not of_a_request:
                yield node.lineno, node.attr


def complaints(path: str, source: str) -> list[str]:
    """List the violations in a module at `path`."""
    found = []
    for line, text in strings(source):
        if path != "jobs/metrics.py" and METRIC.fullmatch(text):
            found.append(f"{path}:{line}: {text!r} is a metric's name: declare it in jobs/metrics.py, use its constant")
        if path != "jobs/queues.py" and QUEUE.fullmatch(text):
            found.append(f"{path}:{line}: {text!r} is a queue's name: use jobs.queues.name(device, priority)")
    found += [f"{path}: {comment!r}: every line is formatted" for comment in UNFORMATTED.findall(source)]
    found += imports_complained_about(path, source)
    found += redis_complaints(path, source)
    found += [
        f"{path}: {text!r} says what a thing is of, not what it is: begin with a verb or a noun"
        for text in docstrings(source)
        if ELLIPTIC.match(text)
    ]
    if set(Path(path).with_suffix("").parts) & NAMELESS:
        found.append(f"{path}: this name says nothing; call the module after what it holds")
    return found


def docstrings(source: str) -> Iterator[str]:
    """Return the first lines of the docstrings of a module, its classes and its functions."""
    for node in nodes(source):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield (ast.get_docstring(node) or "").partition("\n")[0]


def imports_complained_about(path: str, source: str) -> list[str]:
    """List the forbidden imports of a module at `path`."""
    found = []
    for line, name in imported(source):
        first = name.partition(".")[0]
        if first in PICKLES and path not in PICKLING:
            found.append(f"{path}:{line}: {name} unpickles: what travels or is kept is JSON")
        if first == "redis" and path in EXEMPT - {"jobs/store/server/connection.py"}:
            found.append(f"{path}:{line}: only jobs/store/server/connection.py imports redis")
        if first == "rq" and path in EXEMPT - {"jobs/store/work/wakeups.py"}:
            found.append(f"{path}:{line}: only jobs/store/work/wakeups.py imports rq")
        if name in {"os.environ", "os.getenv"} and path in EXEMPT - {"jobs/settings.py", "threads_cluster/settings.py"}:
            found.append(f"{path}:{line}: only jobs/settings.py reads the environment")
    return found


def modules() -> list[Path]:
    return [path for package in ALL for path in sorted((ROOT / package).rglob("*.py"))]


def test_no_module_says_what_it_may_not() -> None:
    assert len(modules()) > 20
    found = [line for path in modules() for line in complaints(path.relative_to(ROOT).as_posix(), path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("coordinator/telemetry/exporter.py", 'jobs = "cluster_jobs_total"', "declare it in jobs/metrics.py"),
        ("coordinator/telemetry/exporter.py", 'new = "cluster_new_seconds"', "declare it in jobs/metrics.py"),
        ("cpu_worker/lane.py", 'queue = f("any.normal")', "use jobs.queues.name"),
        ("jobs/worker/execution.py", "from pickle import loads", "is JSON"),
        ("jobs/worker/execution.py", "def late():\n    import cloudpickle", "is JSON"),
        ("threads_cluster/client/calling/executor.py", "import cloudpickle", "is JSON"),
        ("runner/run.py", "import cloudpickle", "is JSON"),
        ("jobs/settings.py", "import redis", "imports redis"),
        ("jobs/store/work/wakeups.py", "from redis import Redis", "imports redis"),
        ("jobs/store/work/wakeups.py", "import os\nurl = os.environ['REDIS_URL']", "reads the environment"),
        ("jobs/store/server/connection.py", "from os import getenv", "reads the environment"),
        ("jobs/store/server/connection.py", "import rq.job", "imports rq"),
        ("threads_cluster/utils.py", "", "this name says nothing"),
        ("coordinator/telemetry/probe.py", "def f(leases): return leases.client.ping()", "add a method to a part"),
        ("jobs/worker/probe.py", "def f(redis): redis.pipeline(transaction=False)", "add a method to a part"),
        ("coordinator/probe.py", "def f(redis): return redis.hgetall('ct:load')", "add a method to a part"),
        ("jobs/store/events.py", 'STREAM = "ct:events"', "use jobs.store.keys"),
        ("jobs/common/ranges.py", "", "this name says nothing"),
        ("jobs/worker/probe.py", "x = [1,  2]  # fmt: skip", "every line is formatted"),
        ("jobs/worker/probe.py", 'class Probe:\n    """What a lane measured."""', "begin with a verb or a noun"),
    ],
)
def test_a_violation_is_complained_about(path: str, source: str, complaint: str) -> None:
    assert [line for line in complaints(path, source) if complaint in line]


def test_names_may_be_spoken_of_and_declared_at_home() -> None:
    assert not complaints("threads_cluster/cli/show.py", '"""Shows cluster_jobs_total and any.normal."""')
    assert not complaints("jobs/metrics.py", 'JOBS = "cluster_jobs_total"')
    assert not complaints("jobs/queues.py", 'FIRST = "gpu.high"')
    assert not complaints("jobs/store/telemetry.py", "def f(client): client.pipeline().hgetall(keys.LOAD)")
    assert not complaints("jobs/store/keys.py", "LOAD = 'ct:load'")


# -- private names ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateUse:
    """A use of a library's private or undocumented name that has no public way.

    Look at it again when the library is upgraded.
    """

    path: str
    name: str
    library: str
    #: The version in which this use was last checked.
    version: str
    reason: str


#: Maximum number: five.
PRIVATE_USES = (
    PrivateUse(
        "coordinator/server/direct_dispatch.py",
        "Dependant",
        "fastapi",
        "0.165.0",
        "Without it, FastAPI solves the dependencies of small calls: an eighth more CPU of a coordinator for each job.",
    ),
    PrivateUse(
        "jobs/kinds/code_sets.py",
        "_unique_ids",
        "numba",
        "0.68.1",
        "Symbols of compiled functions need random ids. numba has no public way to choose them.",
    ),
    PrivateUse(
        "threads_cluster/joblib_backend.py",
        "_ready_batches",
        "joblib",
        "1.6.0",
        "joblib keeps batches of a failed call there and runs them in the next call, with all of its backends.",
    ),
)
#: Names with an underscore that Python's documentation describes.
DOCUMENTED = frozenset({"_asdict", "_exit", "_fields", "_make", "_replace"})
#: Functions that accept the name of an attribute as text.
ATTRIBUTE_CALLS = frozenset({"attrgetter", "delattr", "getattr", "hasattr", "patch", "setattr"})


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__") and name not in DOCUMENTED


def defined_names(source: str) -> set[str]:
    """Return the private names that a module defines: functions, classes, variables, parameters and attributes."""
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return set(filter(is_private, found))


def is_own(node: ast.expr) -> bool:
    """Return True for self, cls and super()."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_names(source: str) -> Iterator[tuple[int, str, bool]]:
    """Return the lines and names of private attributes and imports, and whether each belongs to its own class."""
    for node in nodes(source):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr, is_own(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            texts = [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
            yield from ((node.lineno, name, False) for text in texts for name in text.split("."))
        elif isinstance(node, ast.Call) and called_name(node) in ATTRIBUTE_CALLS:
            texts = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
            yield from ((node.lineno, name, False) for text in texts for name in text.split("."))


def called_name(call: ast.Call) -> str:
    """Return the last name of a called function, such as setattr of monkeypatch.setattr."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@cache
def definitions_and_uses(source: str) -> tuple[set[str], list[tuple[int, str, bool]]]:
    """Return the private names that a module defines, and the result of `private_names`."""
    return defined_names(source), [use for use in private_names(source) if is_private(use[1])]


def private_complaints(path: str, source: str, defined_elsewhere: set[str]) -> list[str]:
    """List uses of private names that belong to a library or to another module.

    A module may use the private names that it defines. `self` may also have those of a superclass in another module of
    this project, and `defined_elsewhere` has all names that the project defines.
    """
    defined, uses = definitions_and_uses(source)
    own = defined | {use.name for use in PRIVATE_USES if use.path == path}
    return [
        f"{path}:{line}: {name} is private to a library or to another module: use its public interface, or make the"
        " name public where it is defined"
        for line, name, of_self in uses
        if name not in own and not (of_self and name in defined_elsewhere)
    ]


def all_sources() -> dict[str, str]:
    """Return the sources of the product, its tests and its benchmarks by path, without generated code."""
    paths = [path for package in (*ALL, "benchmarks", "tests") for path in (ROOT / package).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths if not path.match("*_pb2.py")}


def test_no_module_uses_a_private_name_of_a_library_or_of_another_module() -> None:
    sources = all_sources()
    defined = set().union(*(definitions_and_uses(source)[0] for source in sources.values()))
    found = [line for path, source in sources.items() for line in private_complaints(path, source, defined)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "def f(connection): return connection._sock",
        "def f(transport): transport._pool = None",
        "def f(worker): worker._shutdown()",
        "def f(self): return self._stop_requested",
        "def f(self): return super()._shutdown()",
        "def f(worker): return getattr(worker, '_state')",
        "def f(monkeypatch): monkeypatch.setattr('library.module._STEP', 1)",
        "def f(monkeypatch, module): monkeypatch.setattr(module, '_STEP', 1)",
        "from library import _name",
        "from library._module import name",
        "import library._module",
    ],
)
def test_a_use_of_a_private_name_is_complained_about(source: str) -> None:
    [complaint] = private_complaints("coordinator/probe.py", source, {"_other"})
    assert "use its public interface" in complaint


@pytest.mark.parametrize(
    "source",
    [
        "class Probe:\n    def __init__(self): self._x = 1\ndef f(probe): return probe._x",
        "def f(self): return self._inherited",
        "import os\ndef f(): os._exit(1)",
        "def f(row, _): return row._replace(x=_.__dict__)",
    ],
)
def test_own_and_documented_names_may_be_used(source: str) -> None:
    assert not private_complaints("coordinator/probe.py", source, {"_inherited"})


@pytest.mark.parametrize("use", PRIVATE_USES, ids=lambda use: use.name)
def test_a_use_without_a_public_way_is_verified_for_the_installed_version(use: PrivateUse) -> None:
    assert len(PRIVATE_USES) <= 5
    assert use.name in (ROOT / use.path).read_text(), f"{use.path} does not use {use.name} any more: delete its entry"
    installed = version(use.library)
    assert installed == use.version, f"{use.library} is {installed} now: verify {use.name} in {use.path} again"


# -- what the tools catch ---------------------------------------------------------------------------------------------


def ruff(path: str, source: str) -> str:
    command: list[str | Path] = [BIN / "ruff", "check", "--no-cache", "--stdin-filename", path, "-"]
    return subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True).stdout


TANGLED = (
    "def f(x: int) -> int:\n" + "".join(f"    if x == {n}:\n        return {n}\n" for n in range(12)) + "    return 0\n"
)


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        (
            "coordinator/probe.py",
            "import redis\n\nredis\n",
            "Only jobs/store/server/connection.py imports redis",
        ),
        ("jobs/probe.py", "from redis.exceptions import RedisError\n\nRedisError\n", "imports redis"),
        ("jobs/store/work/leases.py", "import redis\n\nredis\n", "imports redis"),
        (
            "cpu_worker/probe.py",
            "def f() -> None:\n    import rq\n\n    rq.Queue()\n",
            "Only jobs/store/work/wakeups.py imports rq",
        ),
        ("coordinator/probe.py", 'import os\n\nos.environ["X"]\n', "Only jobs/settings.py reads the environment"),
        ("threads_cluster/probe.py", 'import os\n\nos.getenv("X")\n', "Only jobs/settings.py reads the environment"),
        ("jobs/probe.py", "import pickle\n\npickle\n", "Nothing travels pickled"),
        ("runner/probe.py", "import urllib.request\n\nurllib.request\n", "httpx is the HTTP client"),
        ("deploy/probe.py", "from http.client import HTTPConnection\n\nHTTPConnection\n", "httpx is the HTTP client"),
        ("jobs/probe.py", TANGLED, "C901"),
    ],
)
def test_ruff_catches_a_violation_and_says_what_to_do(path: str, source: str, message: str) -> None:
    assert message in ruff(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("jobs/store/work/wakeups.py", "import rq\n\nrq\n"),
        ("jobs/store/server/connection.py", "import redis\n\nredis\n"),
        ("jobs/settings.py", 'import os\n\nos.environ["X"]\n'),
        ("tests/unit/test_probe.py", 'import os\n\nimport redis\n\nredis, os.environ["X"]\n'),
    ],
)
def test_ruff_lets_the_owners_and_tests_do_it(path: str, source: str) -> None:
    assert "TID251" not in ruff(path, source)


#: One violation of every import contract: the file, the import, and the chain that must be reported.
VIOLATIONS = {
    "The protocol package never imports": ("threads_protocol/probe_part.py", "jobs"),
    "The shared package never imports a service": ("jobs/probe_service.py", "coordinator.app"),
    "A service never imports another": ("threads_cluster/probe_service.py", "cpu_worker"),
    "An engine never imports a service": ("engines/probe_service.py", "runner"),
    "The coordinator never imports numpy": ("coordinator/probe_numpy.py", "jobs.probe_numpy"),
    "Only the GPU worker imports CuPy": ("jobs/probe_cupy.py", "cupy"),
    "The client never imports a library for servers": ("threads_cluster/probe_library.py", "redis"),
    "A kernel never imports redis": ("jobs/kinds/probe_one/cpu_kernel.py", "jobs.logs"),
    "A kind never imports another kind": ("jobs/kinds/probe_one/definition.py", "jobs.kinds.probe_two"),
    "Only the registry loads kernels": ("jobs/probe_kernel.py", "jobs.kinds.probe_one.cpu_kernel"),
    "Production code never imports tests": ("cpu_worker/probe_tests.py", "tests"),
}


@pytest.fixture(scope="module")
def broken_contracts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return import-linter's report on a copy of the packages that contains every violation."""
    copy = tmp_path_factory.mktemp("violations")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for package in ALL:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for kind in ("probe_one", "probe_two"):
        (copy / "jobs" / "kinds" / kind).mkdir()
        (copy / "jobs" / "kinds" / kind / "__init__.py").touch()
    (copy / "jobs" / "probe_numpy.py").write_text("import numpy\n")
    for path, module in VIOLATIONS.values():
        (copy / path).write_text(f"def late():\n    import {module}\n")
    # With -c the working folder comes first on the path: the copy is read, not the checkout.
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", program], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return re.sub(r"\s+", " ", done.stdout)


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_import_linter_catches_a_violation_of(contract: str, broken_contracts: str) -> None:
    path, module = VIOLATIONS[contract]
    importer = path.removesuffix(".py").replace("/", ".")
    assert re.search(rf"{re.escape(contract)}[^.]* BROKEN", broken_contracts)
    assert re.search(rf"{re.escape(importer)} (->|is not allowed to import) {re.escape(module)}", broken_contracts)


def test_every_contract_is_violated_here() -> None:
    names = re.findall(r'^name = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1:]
    assert len(names) == len(VIOLATIONS)
    assert all(any(name.startswith(start) for start in VIOLATIONS) for name in names)
