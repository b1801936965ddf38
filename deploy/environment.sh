#!/usr/bin/env bash
# Install one group of requirements and the `cluster` command into the checkout's .venv.
# Usage: deploy/environment.sh local|dev|gpu-worker|tracing    Repeated runs find a stamp file and exit immediately.
# The groups gpu-worker and tracing add packages to the installed ones.
# Exit codes: 0 success, 1 the installation failed, 2 usage error, 3 a dependency is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }

fail() {
  local code=$1
  shift
  say "error: $*"
  exit "$code"
}

usable() { # usable PYTHON: true if the interpreter is new enough and can create environments
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
  fail 3 "install Python, then run the same command again; or set PYTHON=/path/to/python3.12 $0 $*"
}

fingerprint() { # fingerprint GROUP: print a checksum of the pinned versions and this script
  cat "requirements/$1.txt" deploy/environment.sh | cksum
}

at_home() { # true if the environment works and was created in this folder, because it contains absolute paths
  [[ "$(cat .venv/place 2>/dev/null)" == "$PWD" ]] && .venv/bin/python -c '' 2>/dev/null
}

ready() { # ready GROUP
  [[ "$(cat ".venv/$1.stamp" 2>/dev/null)" == "$(fingerprint "$1")" ]] && at_home
}

make_environment() {
  local python=$1
  [[ -w . ]] || fail 1 "this user cannot write to $PWD." \
    "Run the command as the owner of the folder, or clone the project into a folder of your own."
  if [[ -d .venv ]] && ! at_home; then
    say "The environment .venv was created for another folder or Python; creating it again."
    rm -rf .venv || fail 1 "cannot delete .venv; see the lines above, delete it, then run the same command again."
  fi
  if [[ ! -d .venv ]]; then
    say "Creating .venv with $("$python" --version) ..."
    "$python" -m venv .venv || fail 1 "$python could not create .venv; see the lines above."
    pwd >.venv/place
  fi
}

install_requirements() {
  local began=$SECONDS
  say "Installing requirements/$1.txt (once; a minute or two) ..."
  if ! .venv/bin/python -m pip install --disable-pip-version-check --no-compile --require-hashes -r "requirements/$1.txt" \
    >.venv/install.log 2>&1; then
    grep -v '^WARNING: Location' .venv/install.log | tail -n 15 >&2
    ! grep -qi 'no space left' .venv/install.log || fail 1 "the disk is full: it has no space for requirements/$1.txt or" \
      "pip's temporary files in ${TMPDIR:-/tmp}. Free some space (see df -h), then run the same command again."
    [[ -z ${CLUSTER_BUNDLE:-} ]] || fail 1 "the bundle in $CLUSTER_BUNDLE does not contain all packages of this version" \
      "for $(.venv/bin/python --version) on $(uname -sm). It is for: $(paste -sd , "$CLUSTER_BUNDLE/targets"). Start with" \
      "--bundle and another file, or delete the folder to install from a package index."
    fail 1 "pip could not install requirements/$1.txt (log: .venv/install.log)." \
      "pip needs a package index: check the network or set PIP_INDEX_URL or PIP_FIND_LINKS, then run the same command again."
  fi
  say "Installed after $((SECONDS - began)) s."
}

write_commands() { # write .venv/bin/cluster and its command aliases, and add the checkout to the environment's path
  local packages
  packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  pwd >"$packages/threads-cluster.pth"
  write_command cluster cluster
  write_command gswarm gswarm
  write_command grid-cli grid_cli
}

write_command() { # NAME FUNCTION
  {
    printf '#!/bin/sh\n'
    printf 'exec %q -c "from threads_cluster.entry_points import %s; %s()" "$@"\n' "$PWD/.venv/bin/python" "$2" "$2"
  } >".venv/bin/$1"
  chmod +x ".venv/bin/$1"
}

wait_for_others() { # wait until no other process changes .venv. macOS has no flock.
  command -v flock >/dev/null || return 0
  exec 9<.
  flock -n 9 && return
  say "Another process is installing packages in this folder; waiting until it has finished ..."
  flock 9 || true # some network file systems cannot lock a folder
}

main() {
  local group=${1:-}
  [[ $# -eq 1 && "$group" =~ ^(local|dev|gpu-worker|tracing)$ ]] || fail 2 "usage: deploy/environment.sh local|dev|gpu-worker|tracing"
  ready "$group" && return
  wait_for_others
  ready "$group" && return
  local python
  python=$(find_python "$@")
  make_environment "$python"
  install_requirements "$group"
  write_commands
  if [[ "$group" == dev ]]; then # dev contains all packages of these groups in the same versions
    fingerprint local >.venv/local.stamp
    fingerprint tracing >.venv/tracing.stamp
  fi
  fingerprint "$group" >".venv/$group.stamp"
}

main "$@"
