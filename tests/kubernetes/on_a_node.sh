#!/usr/bin/env bash
# Run `make kubernetes-test` on a temporary Kubernetes cluster with one node on this machine.
# KUBERNETES_NODE is the path of a program that starts and stops the node as root.
# `PROGRAM up` starts the node, with admin.kubeconfig and the socket containerd.sock in the folder $STATE.
# `PROGRAM down` stops the node and deletes its files. The script needs a Docker engine, which builds missing images.
# Exit codes: 3 a dependency is missing, otherwise the exit code of make.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 3
}

[[ -x ${KUBERNETES_NODE:-} ]] || fail "KUBERNETES_NODE is not the path of a program; see $0"
((EUID == 0)) || fail "starting a node needs root"
docker info >/dev/null 2>&1 || fail "the Docker engine does not answer"

step() { # step COMMAND...: run a command and print its duration
  local began=$SECONDS
  "$@"
  printf '%4s s  %s\n' "$((SECONDS - began))" "$*"
}

# Copy the kernels that other tests have compiled, so that the pods do not compile them again.
share_kernels() {
  local kept=/var/tmp/threads-cluster-test-kernels
  mkdir -p "$kept"
  [[ ! -d .cluster/cache/numba ]] || cp -au .cluster/cache/numba/. "$kept/"
  chown -R 10001:10001 "$kept"
}

start() { # start the node, and build missing images at the same time
  ENGINES=llamacpp docker compose --profile runner build --quiet coordinator cpu-worker runner web nginx &
  "$KUBERNETES_NODE" up
  wait "$!"
}

STATE=$(mktemp -d)/node
export STATE
trap 'step "$KUBERNETES_NODE" down; rm -rf "$(dirname "$STATE")" /var/tmp/threads-cluster-test-storage' EXIT
step share_kernels
step start
# Increase the CPU share of the pods, which otherwise count as a single process next to other tests.
pods=/sys/fs/cgroup/cpu/kubepods/cpu.shares
[[ ! -w $pods ]] || echo 8192 >"$pods"

export KUBECONFIG=$STATE/admin.kubeconfig CONTAINERD_ADDRESS=$STATE/containerd.sock
export KUBERNETES_TEST_OVERLAY=tests/kubernetes/one_old_node KUBERNETES_TEST_LOAD=true
# The tests need no cleanup, because the node is deleted afterward.
export KUBERNETES_TEST_CLEANUP=false
step make kubernetes-test
