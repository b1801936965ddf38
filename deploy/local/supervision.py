"""Configuration and start of supervisord, which restarts the programs of a local cluster when they exit."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local import cpu_workers, private_files, processes, redis_server
from deploy.local.cluster_programs import Program, programs
from deploy.local.outcome import say
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.settings import LOCAL_FOLDER, STATE_FOLDER, child_environment, load

#: Unix socket on which supervisord accepts calls. The path is relative to STATE_FOLDER, because it must be short.
SOCKET = f"{LOCAL_FOLDER.name}/supervisor"
#: Maximum length of the socket's path. supervisord appends its process ID when it binds the socket.
_MAX_PATH = 90
#: Timeout in seconds for stopping a program. A worker needs less time to commit its partial results.
STOP_SECONDS = 40.0
_SUPERVISORD = """\
[supervisord]
nodaemon=true
silent=true
logfile={folder}/logs/supervisord.log
logfile_maxbytes=5MB
logfile_backups=1
pidfile={folder}/supervisord.pid
childlogdir={folder}/logs
"""

#: Configuration of the socket on which supervisord accepts calls.
_CONTROL = """\
[unix_http_server]
file={socket}
chmod=0600

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""

_PROGRAM = """
[program:{name}]
command={command}
environment={environment}
priority={priority}
autostart={start}
autorestart={again}
exitcodes={ended}
startsecs=1
startretries=1000000
stopsignal=TERM
stopwaitsecs=30
killasgroup=true
redirect_stderr=true
stdout_logfile={folder}/logs/{name}.log
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=2
"""

#: Configuration of programs that stop at the same time. If workers stopped one by one, some would be killed.
_GROUP = """
[group:priority-{priority}]
programs={names}
priority={priority}
"""


def quote_percents(text: str) -> str:
    """Escape percent signs in a text, because supervisord would expand them."""
    return text.replace("%", "%%")


def _section(program: Program, folder: str) -> str:
    return _PROGRAM.format(
        name=program.name,
        priority=program.priority,
        folder=folder,
        start=str(program.autostart).lower(),
        again="true" if program.last_code is None else "unexpected",
        ended=program.last_code or 0,
        command=quote_percents(shlex.join(program.command)),
        environment=quote_percents(",".join(f'{name}="{value}"' for name, value in program.environment.items())),
    )


def write(shape: Shape, run: Run, passwords: Mapping[str, str]) -> Path:
    """Write the configuration files of supervisord and Redis. Return the path of supervisord's file.

    Paths of data are relative to STATE_FOLDER, where supervisord runs, because its format cannot quote every character.
    """
    redis_server.write_configuration(run.folder, shape.redis_port, passwords)
    cpu_workers.write_lanes(shape.lanes, shape.workers - len(shape.lanes))
    return write_programs(programs(shape, run, passwords), run)


def write_programs(supervised: Sequence[Program], run: Run) -> Path:
    """Write a configuration file for supervisord, and return its path."""
    folder = run.folder.name
    (run.folder / "logs").mkdir(exist_ok=True)
    path = run.folder / "supervisord.conf"
    sections = [_section(program, folder) for program in supervised]
    text = "".join([_SUPERVISORD.format(folder=folder), _control(), *sections, *_groups(supervised)])
    private_files.write(path, text.encode())
    return path


def _groups(supervised: Sequence[Program]) -> list[str]:
    names: defaultdict[int, list[str]] = defaultdict(list)
    for program in supervised:
        names[program.priority].append(program.name)
    return [_GROUP.format(priority=priority, names=",".join(several)) for priority, several in names.items()]


def _control() -> str:
    """Return the configuration of SOCKET, or "" if its path is too long when supervisord makes it absolute."""
    here = Path("/proc/self/cwd")
    path = f"{here if here.exists() else STATE_FOLDER}/{SOCKET}"
    return _CONTROL.format(socket=quote_percents(path)) if len(path) <= _MAX_PATH else ""


def start(configuration: Path, run: Run, **variables: str) -> subprocess.Popen[bytes]:
    """Start supervisord with a configuration file. It runs in its own session.

    Signals of the terminal therefore reach only the starter, which then stops supervisord.
    """
    name = f"{LOCAL_FOLDER.name}/{configuration.name}"
    (STATE_FOLDER / SOCKET).unlink(missing_ok=True)  # supervisord would wait for the socket of a killed supervisord
    return subprocess.Popen(
        run.command(sys.executable, "-m", "deploy.local.supervisor_daemon", "-c", name),
        cwd=STATE_FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=child_environment(PROFILE_DIR=load().profile_dir or f"{LOCAL_FOLDER.name}/profiles", **variables),
    )


def end(supervisor: subprocess.Popen[bytes] | None, run: Run) -> None:
    """Stop supervisord and its programs. Kill processes that do not stop in time."""
    if supervisor and supervisor.poll() is None:
        supervisor.terminate()
        try:
            supervisor.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say("Some processes did not stop in time; killing them.")
    processes.stop_marked(run.mark)
