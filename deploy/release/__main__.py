"""Command line of releases: `python -m deploy.release wheel DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.release import wheel


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.release")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("wheel", help="build the wheel, and print its path").add_argument("directory", type=Path)
    given = parser.parse_args()
    try:
        print(wheel.build(given.directory.absolute()))
    except wheel.BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
