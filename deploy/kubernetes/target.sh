# shellcheck shell=bash
# shellcheck disable=SC2016  # templates and awk's fields
# Sourced by deploy-cluster.sh. Finds the Kubernetes cluster, and reads the notes of the last start.
# The only file that this script writes is $TARGET, which records the cluster of this checkout.

#: Oldest kubectl that supports components, and oldest Kubernetes with all fields in k8s/. The newest of these fields,
#: unhealthyPodEvictionPolicy of PodDisruptionBudgets, is enabled by default since 1.27.
# shellcheck disable=SC2034
readonly OLDEST_KUBECTL=1.27 OLDEST_API=1.27
readonly GET_KUBECTL='Install it: https://kubernetes.io/docs/tasks/tools'
KUBECTL=(kubectl)
NAMESPACE=threads-cluster
SERVER_VERSION='' # of the Kubernetes cluster, if it answers

target_line() { # target_line NAME: print a value from the file $TARGET
  local line
  [[ -f $TARGET ]] || return 0
  while IFS= read -r line; do
    [[ $line != "$1="* ]] || printf '%s\n' "${line#*=}"
  done <"$TARGET"
}

need_kubectl() { # sets CONTEXT, NAMESPACE and KUBECTL
  local version context=${CONTEXT:-}
  command -v kubectl >/dev/null || fail 3 "the kubectl command is not installed." "$GET_KUBECTL"
  version=$(kubectl version --client 2>/dev/null)
  if [[ $version =~ Client\ Version:\ v([^[:space:]]+) ]]; then version=${BASH_REMATCH[1]}; else version=''; fi
  at_least "${version:-0.0}" "$OLDEST_KUBECTL" ||
    fail 3 "kubectl $OLDEST_KUBECTL or later is required; the installed version is ${version:-older}." "$GET_KUBECTL"
  [[ -n $context ]] || context=$(target_line CONTEXT)
  [[ -n $context ]] || context=$(kubectl config current-context 2>/dev/null) ||
    fail 3 "kubectl has no current context." "Set KUBECONFIG, or choose a context: kubectl config get-contexts, then --context NAME" \
      "Without a cluster: ./deploy-cluster.sh docker"
  use_cluster "$context"
}

use_cluster() { # use_cluster CONTEXT: sets CONTEXT, NAMESPACE and KUBECTL
  CONTEXT=$1
  NAMESPACE=${NAMESPACE_GIVEN:-$(target_line NAMESPACE)}
  NAMESPACE=${NAMESPACE:-threads-cluster}
  [[ $NAMESPACE =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]] ||
    wrong "a namespace must have up to 63 lowercase letters, digits and -, and must not start or end with -; got '$NAMESPACE'."
  KUBECTL=(kubectl --context "$CONTEXT" --namespace "$NAMESPACE")
}

k() { "${KUBECTL[@]}" "$@"; }

run_k() { # run_k ARGUMENT...: run kubectl, or print the command with --dry-run
  if [[ -n $DRY ]]; then quoted "${KUBECTL[@]}" "$@"; else k "$@" </dev/null >&2; fi
}

need_cluster() { # fail unless the Kubernetes API answers and accepts this user
  local said
  if [[ -n $DRY ]] && ! kubernetes_answers; then
    pretend_cluster
    return
  fi
  need_kubectl
  ask_version
  if [[ $said == *answered ]]; then
    # shellcheck disable=SC2034  # used by preflight.sh
    if [[ $said =~ \"gitVersion\":\ *\"v([0-9.]+) ]]; then SERVER_VERSION=${BASH_REMATCH[1]}; fi
    read_notes
    return
  fi
  case $said in
    *"context"*"does not exist"* | *"no context exists"*)
      fail 3 "kubectl has no context '$CONTEXT'." "See: kubectl config get-contexts" ;;
    *nauthorized* | *"provide credentials"* | *orbidden*)
      fail 3 "the Kubernetes cluster of context $CONTEXT rejects this user: $(tail -n 1 <<<"$said")" \
        "Log in again, or choose another context: --context NAME" ;;
  esac
  fail 3 "the Kubernetes cluster of context $CONTEXT does not answer: $(tail -n 1 <<<"$said")" \
    "Check it: kubectl --context $CONTEXT cluster-info"
}

ask_version() { # sets `said`, which ends in "answered" on success; prints a message if the API is slow
  local rest='' code=0 from
  exec {from}< <(k get --raw /version --request-timeout 10s 2>&1 && printf answered)
  IFS= read -r -d '' -t "$QUIET_SECONDS" -u "$from" said || code=$?
  if ((code > 128)); then # the request has not finished yet
    say "Waiting up to 30 s for the Kubernetes cluster of context $CONTEXT ..."
    IFS= read -r -d '' -u "$from" rest || true
    said+=$rest
  fi
  said=${said%$'\n'}
  exec {from}<&-
}
readonly QUIET_SECONDS=${QUIET_SECONDS:-4}

readonly NOTES='{{range $name, $value := .data}}{{$name}}={{$value}}{{"\n"}}{{end}}'

read_notes() { # fail if the notes cannot be read, because the command would treat the cluster as new and change its counts
  k get configmap deployment --ignore-not-found --output "go-template=$NOTES" >"$WORK/notes" 2>"$WORK/log" ||
    unreadable "the ConfigMap deployment"
  local line
  while IFS= read -r line; do
    [[ $line != *=* ]] || NOTED[${line%%=*}]=${line#*=}
  done <"$WORK/notes"
}
declare -gA NOTED=() # notes of the last start in the cluster

unreadable() { # unreadable WHAT: fail with kubectl's message in $WORK/log
  fail 3 "cannot read $1 in namespace $NAMESPACE of context $CONTEXT: $(tail -n 1 "$WORK/log")" \
    "Show this user's rights: kubectl --context $CONTEXT auth can-i --list --namespace $NAMESPACE"
}

deployed() { # deployed NAME: print a note of the last start, or nothing
  printf '%s\n' "${NOTED[$1]:-}"
}

need_deployed() {
  need_cluster
  [[ -z $(deployed workers)$PRETENDED ]] || return 0
  fail 1 "namespace $NAMESPACE of context $CONTEXT does not contain a Threads Cluster." \
    "Start one: ./deploy-cluster.sh kubernetes 3 0"
}

remember() { # record the cluster for later commands of this checkout
  [[ -z $DRY ]] || return 0
  printf 'CONTEXT=%s\nNAMESPACE=%s\n' "$CONTEXT" "$NAMESPACE" >"$TARGET.new"
  mv "$TARGET.new" "$TARGET"
}

# -- workloads --------------------------------------------------------------------------------------------------------

readonly ROWS='{{range .items}}{{.kind}} {{.metadata.name}} {{or .status.readyReplicas 0}} {{.spec.replicas}} {{or .status.updatedReplicas 0}} {{or .status.replicas 0}} {{.metadata.generation}} {{or .status.observedGeneration 0}}{{"\n"}}{{end}}'

readonly PART_OF=app.kubernetes.io/part-of # label of all objects of this project

workloads() { # print kind, name, ready, desired, updated and total replicas, generation and observed generation of each workload
  k get deployments,statefulsets --selector "$PART_OF=threads-cluster" --output "go-template=$ROWS"
}

readonly SETTLED='$3 == $4 && $5 == $4 && $6 == $4 && $8 >= $7'

unsettled() { workloads | awk "!($SETTLED)"; }

ready_pod() { # ready_pod NAME: print the name of a ready pod of the workload, if any
  k get pods --selector "app.kubernetes.io/name=$1" --field-selector status.phase=Running --output \
    'go-template={{range .items}}{{$name := .metadata.name}}{{$gone := .metadata.deletionTimestamp}}{{range .status.conditions}}{{if and (eq .type "Ready") (eq .status "True") (not $gone)}}{{$name}}{{"\n"}}{{end}}{{end}}{{end}}' |
    head -n 1
}

in_a_coordinator() { # in_a_coordinator SCRIPT ARGUMENT...: run a Python script in a coordinator; fails if none is ready
  local pod
  pod=$(ready_pod coordinator)
  [[ -n $pod ]] || return 1
  k exec --stdin "$pod" --container coordinator -- python3 - "${@:2}" <"$1"
}
