#!/usr/bin/env bash
# Runs `make kubernetes-test` on a Kubernetes that is started for it on this machine, and ends that again.
# KUBERNETES_NODE names the program that starts it, as root: `PROGRAM up` makes one node whose files lie in the folder
# $STATE (admin.kubeconfig, and the socket containerd.sock), `PROGRAM down` ends it and leaves nothing.
# Docker must answer, and holds or builds the images. Exit codes: those of make; 3: something is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 3
}

[[ -x ${KUBERNETES_NODE:-} ]] || fail "KUBERNETES_NODE names no program that starts a node; see $0"
((EUID == 0)) || fail "starting a node needs root"
docker info >/dev/null 2>&1 || fail "no Docker engine answers"

step() { # step COMMAND...: says how long it took
  local began=$SECONDS
  "$@"
  printf '%4s s  %s\n' "$((SECONDS - began))" "$*"
}

# Compiled code of equal sources is the same everywhere: what other tests have compiled, the pods need not.
share_kernels() {
  local kept=/var/tmp/threads-cluster-test-kernels
  mkdir -p "$kept"
  [[ ! -d .cluster/cache/numba ]] || cp -au .cluster/cache/numba/. "$kept/"
  chown -R 10001:10001 "$kept"
}

start() { # the node, and meanwhile what is missing of the images
  ENGINES=llamacpp docker compose --profile runner build --quiet coordinator cpu-worker runner web nginx &
  "$KUBERNETES_NODE" up
  wait "$!"
}

STATE=$(mktemp -d)/node
export STATE
trap 'step "$KUBERNETES_NODE" down; rm -rf "$(dirname "$STATE")" /var/tmp/threads-cluster-test-storage' EXIT
step share_kernels
step start
# All pods together count as one process among those that keep every core busy beside them.
pods=/sys/fs/cgroup/cpu/kubepods/cpu.shares
[[ ! -w $pods ]] || echo 8192 >"$pods"

export KUBECONFIG=$STATE/admin.kubeconfig CONTAINERD_ADDRESS=$STATE/containerd.sock
export KUBERNETES_TEST_OVERLAY=tests/kubernetes/one_old_node KUBERNETES_TEST_LOAD=true
# The node goes, and everything with it.
export KUBERNETES_TEST_CLEANUP=false
step make kubernetes-test
