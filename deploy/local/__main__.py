"""Command line of the local cluster, which ./deploy-cluster.sh uses: `python -m deploy.local COMMAND`.

COMMAND is run, stop, status, scale, metrics, update, rollback, invite, join or leave. Scripts use the commands
start-unit, stop-unit, dump, restore, report and configuration, an update runs `switch`, and `cluster up` uses `state`
and `join-detached`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from deploy.local.outcome import INTERRUPTED, USAGE, CommandError, StopRequested, command_error_from_os_error, say
from jobs.invalid_settings import InvalidSettings
from jobs.settings import STATE_FOLDER


def main() -> int:
    given = _parser().parse_args()
    try:
        # Paths in the configuration are relative to this folder, because the paths of sockets must be short.
        os.chdir(STATE_FOLDER)
        return run_command(given)
    except CommandError as trouble:
        return report_error(trouble)
    except StopRequested:
        return INTERRUPTED
    except InvalidSettings as error:
        return report_error(CommandError(USAGE, str(error)))
    except OSError as error:
        return report_error(command_error_from_os_error(error))


def report_error(trouble: CommandError) -> int:
    say(f"error: {trouble}")
    return trouble.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.local")
    verbs = parser.add_subparsers(dest="command", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--port", type=int)
    run.add_argument("--workers", type=int, default=1)
    for flag in ("--once", "--json", "--no-samples", "--runner", "--no-runner", "--tracing"):
        run.add_argument(flag, action="store_true")
    for command in ("start-unit", "stop-unit"):
        unit = verbs.add_parser(command)
        unit.add_argument("scope", choices=("system", "user"))
        unit.add_argument("options", nargs=argparse.REMAINDER)
    for command in ("stop", "status", "metrics", "report", "configuration"):
        verbs.add_parser(command)
    verbs.add_parser("scale").add_argument("count", type=int)
    for command in ("dump", "restore"):
        verbs.add_parser(command).add_argument("folder", type=Path)
    invite = verbs.add_parser("invite")
    invite.add_argument("--address", default="")
    invite.add_argument("--port", type=int)
    invite.add_argument("--ttl", default="1h")
    invite.add_argument("--close", metavar="ID")
    invite.add_argument("--labels", default="")
    invite.add_argument("--gpu", action="store_true")
    invite.add_argument("--runner", action="store_true")
    invite.add_argument("--only-text", action="store_true")
    join = verbs.add_parser("join")
    join.add_argument("invitation", nargs="?", default="")
    join.add_argument("--name", default="")
    join.add_argument("--workers", type=int, default=1)
    join.add_argument("--labels", default="")
    for flag in ("--gpu", "--runner", "--service"):
        join.add_argument(flag, action="store_true")
    verbs.add_parser("state")
    verbs.add_parser("join-detached").add_argument("options", nargs="*")
    verbs.add_parser("leave").add_argument("--anyway", action="store_true")
    _add_update_verbs(verbs)
    return parser


def _add_update_verbs(verbs: Any) -> None:
    update = verbs.add_parser("update")
    update.add_argument("source", nargs="?", default="")
    update.add_argument("--check", action="store_true")
    update.add_argument("--from", dest="candidate", default="")
    for verb in (update, verbs.add_parser("rollback"), verbs.add_parser("switch")):
        verb.add_argument("--drain", type=float, default=60.0)


def run_command(given: argparse.Namespace) -> int:
    from deploy.local import commands  # takes seconds on a busy machine

    if given.command == "run":
        wanted = commands.ClusterOptions(
            port=given.port,
            workers=given.workers,
            runner=not given.no_runner,
            once=given.once,
            as_json=given.json,
            samples=not given.no_samples,
            tracing=given.tracing,
        )
        return commands.run(wanted)
    if given.command in ("start-unit", "stop-unit"):
        return control_unit(given)
    if given.command in ("stop", "status"):
        return commands.stop() if given.command == "stop" else commands.status()
    if given.command in ("state", "join-detached"):
        return start_detached(given)
    if given.command in ("scale", "metrics", "dump", "restore", "report", "configuration"):
        return _operate(given)
    if given.command in ("update", "rollback", "switch"):
        return _change_release(given)
    return _about_hosts(given)


def _change_release(given: argparse.Namespace) -> int:
    from deploy.local import switching, updating  # Imported here because a start does not need these modules

    if given.command == "switch":
        return switching.switch(given.drain)
    if given.command == "rollback":
        return updating.rollback(given.drain)
    return (
        updating.check(given.candidate or given.source) if given.check else updating.update(given.source, given.drain)
    )


def _operate(given: argparse.Namespace) -> int:
    # Import only here, because starting a cluster does not need these modules.
    if given.command == "metrics":
        from deploy.local import prometheus_configuration

        return prometheus_configuration.print_configuration()
    from deploy.local import data_copies, report, scaling

    if given.command == "scale":
        return scaling.scale(given.count)
    if given.command in ("dump", "restore"):
        return {"dump": data_copies.dump, "restore": data_copies.restore}[given.command](given.folder)
    return report.report() if given.command == "report" else report.configuration()


def control_unit(given: argparse.Namespace) -> int:
    from deploy.local import boot, units  # Most clusters do not need these modules

    scope = units.SYSTEM if given.scope == "system" else units.USER
    return boot.start(scope, given.options) if given.command == "start-unit" else boot.stop(scope)


def start_detached(given: argparse.Namespace) -> int:
    from deploy.local.joining import background_join

    return background_join.state() if given.command == "state" else background_join.join(given.options)


def _about_hosts(given: argparse.Namespace) -> int:
    # A cluster on one machine does not need these modules.
    from deploy.local.joining import inviting, joining

    if given.command == "invite" and given.close is not None:
        return inviting.close(given.close)
    if given.command == "invite":
        asked = inviting.InvitationOptions(
            address=given.address,
            port=given.port,
            ttl=given.ttl,
            gpu=given.gpu,
            runner=given.runner,
            labels=given.labels,
            only_text=given.only_text,
        )
        return inviting.invite(asked)
    if given.command == "leave":
        return joining.leave(anyway=given.anyway)
    return joining.join(
        joining.JoinOptions(
            invitation=given.invitation,
            name=given.name,
            workers=given.workers,
            runner=given.runner,
            gpus=joining.count_gpus() if given.gpu else 0,
            labels=given.labels,
            service=given.service,
        )
    )


if __name__ == "__main__":
    # While modules are imported, Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
