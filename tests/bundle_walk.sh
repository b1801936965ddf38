#!/usr/bin/env bash
# Install a cluster from a bundle in a network namespace without a route, and run a first program and a first job.
# Usage: tests/bundle_walk.sh    Needs Linux, and root or permission to create namespaces. `make bundle-walk` runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '\n== %s\n' "$*" >&2; }

outside() { # write the bundle twice, and continue in a namespace
  local work namespace=(unshare --net)
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder is known now
  trap "chmod -R u+rwX '$work'; rm -rf '$work'" EXIT
  step "Write a bundle, twice"
  ./deploy-cluster.sh bundle "$work/bundle.tar" --engine llamacpp
  ./deploy-cluster.sh bundle "$work/again.tar" --engine llamacpp
  cmp "$work/bundle.tar" "$work/again.tar"
  rm "$work/again.tar"
  mkdir "$work/home"
  cp engines/llamacpp/requirements.txt "$work/engine.txt"
  ((EUID == 0)) || namespace=(unshare --map-root-user --net)
  "${namespace[@]}" env -i PATH="$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')/bin:$PATH" HOME="$work/home" \
    PIP_CONFIG_FILE=/dev/null bash "$PWD/tests/bundle_walk.sh" inside "$work"
}

inside() { # inside WORK: install and use a cluster without a network
  local work=$1 began
  cluster=$1/home/env/bin/cluster
  ip link set lo up
  [[ -z $(ip route) ]] || { echo "error: this namespace has a route" >&2 && exit 1; }
  cd "$work/home"
  step "Install the cluster command from the bundle"
  began=$SECONDS
  tar -xf ../bundle.tar
  python3 -m venv env
  env/bin/pip install -q --disable-pip-version-check --no-index --find-links threads-cluster-bundle/wheels threads-cluster
  step "Start the cluster from the bundle"
  "$cluster" start --bundle ../bundle.tar --port 3977 >start.log 2>&1 &
  trap 'wait_until_stopped' EXIT
  until [[ -s .local/share/threads-cluster/.cluster/url ]]; do
    kill -0 $! 2>/dev/null || { cat start.log >&2 && exit 1; }
    sleep 0.2
  done
  [[ $("$cluster" run --no-files -- echo hello) == hello ]]
  step "The first program printed hello $((SECONDS - began)) s after the start of the installation"
  "$cluster" submit collatz --start-number 1 --number-count 1e9 --wait
  step "The first Collatz result came after $((SECONDS - began)) s"
  mkdir program
  cp ../engine.txt program/
  (cd program && "$cluster" run --python engine.txt -- python3 -c 'import xllamacpp; print("llama.cpp works")')
}

wait_until_stopped() {
  "$cluster" stop || true
  wait
}

if [[ ${1:-} == inside ]]; then inside "$2"; else outside; fi
