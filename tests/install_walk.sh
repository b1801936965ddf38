#!/usr/bin/env bash
# Install the wheel without a checkout in an empty home folder, start a cluster, and print the time of each step.
# Usage: tests/install_walk.sh WHEEL    Also installs with pipx and uv if they are on PATH.
# Exit codes: 0 everything worked, 1 a step failed or the first results took more than LIMIT (60) seconds.
set -euo pipefail

wheel=$(realpath "$1")
folder=$(mktemp -d)
PIP_CACHE_DIR=${PIP_CACHE_DIR:-$(python3 -m pip cache dir)} # of the user, because the home folder is empty
export PIP_CACHE_DIR HOME=$folder/home XDG_DATA_HOME="$folder/home/my data"
unset CLUSTER_HOME CLUSTER_URL CLUSTER_TOKEN XDG_CONFIG_HOME
mkdir "$HOME"
cd "$HOME"

step() { # step NAME COMMAND...: run a command, and print its time
  local began=$SECONDS name=$1
  shift
  "$@" >"$folder/log" 2>&1 || {
    printf 'failed: %s\n' "$name"
    cat "$folder/log"
    exit 1
  }
  printf '%4d s  %s\n' $((SECONDS - began)) "$name"
}

stop() { "$folder/venv/bin/cluster" stop >/dev/null 2>&1 || true; }
trap 'stop; rm -rf "$folder"' EXIT

is_ready() { until grep -q '^Ready' "$folder/start.log"; do kill -0 "$starter" && sleep 0.2 || return 1; done; }

step "create an environment" python3 -m venv "$folder/venv"
began=$SECONDS
step "pip install the wheel" "$folder/venv/bin/pip" install "$wheel"
"$folder/venv/bin/cluster" start >"$folder/start.log" 2>&1 &
starter=$!
step "cluster start until the cluster is ready" is_ready
step "first program" "$folder/venv/bin/cluster" run --no-files -- echo hello
step "first Collatz result" "$folder/venv/bin/cluster" submit collatz --start-number 1 --number-count 1000000 --wait
total=$((SECONDS - began))
step "cluster stop" "$folder/venv/bin/cluster" stop
wait "$starter"
! command -v pipx >/dev/null || step "pipx install" pipx install "$wheel"
! command -v uv >/dev/null || step "uv tool install" uv tool install "$wheel"
printf '%4d s  from the installation to the first results\n' "$total"
((total <= ${LIMIT:-60}))
