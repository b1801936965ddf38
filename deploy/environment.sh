#!/usr/bin/env bash
# Makes the checkout's .venv hold one group of requirements, and the `cluster` command.
# Usage: deploy/environment.sh local|dev|gpu-worker      A second run finds its stamp and ends at once.
# gpu-worker adds what a GPU worker needs to what is there.
# Exit codes: 0 ready, 1 the installation failed, 2 usage, 3 something must be installed first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }

fail() {
  local code=$1
  shift
  say "error: $*"
  exit "$code"
}

usable() { # usable PYTHON: new enough, and able to make environments
  "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3; do
    if usable "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  say "error: no Python 3.11 or later with its venv module was found."
  say "  Debian, Ubuntu:  sudo apt install python3 python3-venv"
  say "  Fedora:          sudo dnf install python3"
  say "  macOS:           brew install python"
  fail 3 "then run the same command again; or name one: PYTHON=/path/to/python3.12 $0 $*"
}

fingerprint() { # fingerprint GROUP: changes with the pins and with this script
  cat "requirements/$1.txt" deploy/environment.sh | cksum
}

at_home() { # the environment works, and was made for this place: it holds absolute paths
  [[ "$(cat .venv/place 2>/dev/null)" == "$PWD" ]] && .venv/bin/python -c '' 2>/dev/null
}

ready() { # ready GROUP
  [[ "$(cat ".venv/$1.stamp" 2>/dev/null)" == "$(fingerprint "$1")" ]] && at_home
}

make_environment() {
  local python=$1
  [[ -w . ]] || fail 1 "this user may not write into $PWD." \
    "Run the command as the user who owns the folder, or clone the project into a folder of yours."
  if [[ -d .venv ]] && ! at_home; then
    say "The environment .venv belongs to another place or Python; making it anew."
    rm -rf .venv || fail 1 ".venv could not be removed; see the lines above, remove it, then run the same command again."
  fi
  if [[ ! -d .venv ]]; then
    say "Making .venv with $("$python" --version) ..."
    "$python" -m venv .venv || fail 1 "$python could not make .venv; see the lines above."
    pwd >.venv/place
  fi
}

install_requirements() {
  local began=$SECONDS
  say "Installing requirements/$1.txt (once; a minute or two) ..."
  if ! .venv/bin/python -m pip install --disable-pip-version-check --no-compile --require-hashes -r "requirements/$1.txt" \
    >.venv/install.log 2>&1; then
    grep -v '^WARNING: Location' .venv/install.log | tail -n 15 >&2
    ! grep -qi 'no space left' .venv/install.log || fail 1 "the disk is full: it holds neither requirements/$1.txt nor" \
      "what pip needs meanwhile in ${TMPDIR:-/tmp}. Make room, see df -h; then run the same command again."
    fail 1 "pip could not install requirements/$1.txt (all lines: .venv/install.log)." \
      "It needs a way to a package index, or PIP_INDEX_URL or PIP_FIND_LINKS set to one; then run the same command again."
  fi
  say "Installed after $((SECONDS - began)) s."
}

write_commands() { # .venv/bin/cluster and its other faces, and the checkout on the environment's path
  local packages
  packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  pwd >"$packages/threads-cluster.pth"
  write_command cluster cli.main main
  write_command gswarm compat.faces gswarm
  write_command grid-cli compat.faces grid_cli
}

write_command() { # NAME MODULE FUNCTION
  {
    printf '#!/bin/sh\n'
    printf 'exec %q -c "import sys; from threads_cluster.%s import %s; sys.exit(%s())" "$@"\n' \
      "$PWD/.venv/bin/python" "$2" "$3" "$3"
  } >".venv/bin/$1"
  chmod +x ".venv/bin/$1"
}

main() {
  local group=${1:-}
  [[ $# -eq 1 && "$group" =~ ^(local|dev|gpu-worker)$ ]] || fail 2 "usage: deploy/environment.sh local|dev|gpu-worker"
  ready "$group" && return
  local python
  python=$(find_python "$@")
  make_environment "$python"
  install_requirements "$group"
  write_commands
  [[ "$group" != dev ]] || fingerprint local >.venv/local.stamp # dev holds all that local does, same pins
  fingerprint "$group" >".venv/$group.stamp"
}

main "$@"
