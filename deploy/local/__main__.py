"""`python -m deploy.local run|stop|status`, behind ./deploy-cluster.sh."""

from __future__ import annotations

import argparse
import sys

from deploy.local import commands
from deploy.local.outcome import Trouble, say


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local")
    parser.add_argument("command", choices=("run", "stop", "status"))
    parser.add_argument("--port", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--no-samples", action="store_true")
    parser.add_argument("--runner", action="store_true")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            wanted = commands.Wanted(
                port=arguments.port, workers=arguments.workers, runner=arguments.runner, once=arguments.once,
                samples=not arguments.no_samples,
            )  # fmt: skip
            return commands.run(wanted)
        return commands.stop() if arguments.command == "stop" else commands.status()
    except Trouble as trouble:
        say(f"error: {trouble}")
        return trouble.code


if __name__ == "__main__":
    sys.exit(main())
