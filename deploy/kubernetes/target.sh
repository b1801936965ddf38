# shellcheck shell=bash
# shellcheck disable=SC2016  # templates and awk's fields
# Sourced by deploy-cluster.sh: which cluster of Kubernetes is meant, and what is known of ours in it. Only reads, but
# for .kubernetes, which says that this checkout's cluster is there.

readonly TARGET=.kubernetes
#: The first that knows components, and the first API that has all that k8s/ uses.
# shellcheck disable=SC2034
readonly OLDEST_KUBECTL=1.27 OLDEST_API=1.25
readonly GET_KUBECTL='Install it: https://kubernetes.io/docs/tasks/tools'
KUBECTL=(kubectl)
NAMESPACE=threads-cluster

target_line() { # target_line NAME: of .kubernetes
  local line
  [[ -f $TARGET ]] || return 0
  while IFS= read -r line; do
    [[ $line != "$1="* ]] || printf '%s\n' "${line#*=}"
  done <"$TARGET"
}

need_kubectl() { # sets KUBECTL and NAMESPACE
  local version context=${CONTEXT:-}
  command -v kubectl >/dev/null || fail 3 "there is no kubectl command." "$GET_KUBECTL"
  version=$(kubectl version --client 2>/dev/null)
  if [[ $version =~ Client\ Version:\ v([^[:space:]]+) ]]; then version=${BASH_REMATCH[1]}; else version=''; fi
  at_least "${version:-0.0}" "$OLDEST_KUBECTL" ||
    fail 3 "kubectl $OLDEST_KUBECTL or later is needed; this is ${version:-older}." "$GET_KUBECTL"
  [[ -n $context ]] || context=$(target_line CONTEXT)
  [[ -n $context ]] || context=$(kubectl config current-context 2>/dev/null) ||
    fail 3 "kubectl knows no cluster." "Set KUBECONFIG, or choose: kubectl config get-contexts, then --context NAME" \
      "Without a cluster: ./deploy-cluster.sh docker"
  CONTEXT=$context
  NAMESPACE=${NAMESPACE_GIVEN:-$(target_line NAMESPACE)}
  NAMESPACE=${NAMESPACE:-threads-cluster}
  [[ $NAMESPACE =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]] ||
    wrong "a namespace has at most 63 small letters, digits and -, and no - at its ends; got '$NAMESPACE'."
  KUBECTL=(kubectl --context "$CONTEXT" --namespace "$NAMESPACE")
}

k() { "${KUBECTL[@]}" "$@"; }

run_k() { # run_k ARGUMENT...: with --dry-run it is only printed
  if [[ -n $DRY ]]; then quoted "${KUBECTL[@]}" "$@"; else k "$@" </dev/null >&2; fi
}

need_cluster() { # the API answers, and knows who asks
  local said
  need_kubectl
  ask_version
  if [[ $said == *answered ]]; then
    read_notes
    return
  fi
  case $said in
    *"context"*"does not exist"* | *"no context exists"*)
      fail 3 "kubectl knows no context '$CONTEXT'." "See: kubectl config get-contexts" ;;
    *nauthorized* | *"provide credentials"* | *orbidden*)
      fail 3 "the cluster of context $CONTEXT refuses this user: $(tail -n 1 <<<"$said")" \
        "Log in to it again, or choose another: --context NAME" ;;
  esac
  fail 3 "no Kubernetes answers in context $CONTEXT: $(tail -n 1 <<<"$said")" \
    "Is it up? kubectl --context $CONTEXT cluster-info"
}

ask_version() { # sets said, which ends in "answered" when the API did; says what it waits for
  local rest='' code=0 from
  exec {from}< <(k get --raw /version --request-timeout 10s 2>&1 && printf answered)
  IFS= read -r -d '' -t "$QUIET_SECONDS" -u "$from" said || code=$?
  if ((code > 128)); then # it has not ended yet
    say "Waiting for the Kubernetes of context $CONTEXT to answer, half a minute at most ..."
    IFS= read -r -d '' -u "$from" rest || true
    said+=$rest
  fi
  said=${said%$'\n'}
  exec {from}<&-
}
readonly QUIET_SECONDS=${QUIET_SECONDS:-4}

readonly NOTES='{{range $name, $value := .data}}{{$name}}={{$value}}{{"\n"}}{{end}}'

read_notes() { # what is not known would be taken for a first start, with other numbers
  k get configmap deployment --ignore-not-found --output "go-template=$NOTES" >"$WORK/notes" 2>"$WORK/log" ||
    unreadable "what runs"
  local line
  while IFS= read -r line; do
    [[ $line != *=* ]] || NOTED[${line%%=*}]=${line#*=}
  done <"$WORK/notes"
}
declare -gA NOTED=() # what the last start noted in the cluster

unreadable() { # unreadable WHAT: kubectl's own words are in $WORK/log
  fail 3 "$1 in namespace $NAMESPACE of context $CONTEXT cannot be read: $(tail -n 1 "$WORK/log")" \
    "What this user may do: kubectl --context $CONTEXT auth can-i --list --namespace $NAMESPACE"
}

deployed() { # deployed NAME: what the last start noted in the cluster; empty when nothing is there
  printf '%s\n' "${NOTED[$1]:-}"
}

need_deployed() {
  need_cluster
  [[ -z $(deployed workers) ]] || return 0
  fail 1 "no Threads Cluster is in namespace $NAMESPACE of context $CONTEXT." \
    "Start one: ./deploy-cluster.sh kubernetes 3 0"
}

remember() { # so that later commands of this checkout find it
  [[ -z $DRY ]] || return 0
  printf 'CONTEXT=%s\nNAMESPACE=%s\n' "$CONTEXT" "$NAMESPACE" >"$TARGET.new"
  mv "$TARGET.new" "$TARGET"
}

# -- workloads --------------------------------------------------------------------------------------------------------

readonly ROWS='{{range .items}}{{.kind}} {{.metadata.name}} {{or .status.readyReplicas 0}} {{.spec.replicas}} {{or .status.updatedReplicas 0}} {{or .status.replicas 0}} {{.metadata.generation}} {{or .status.observedGeneration 0}}{{"\n"}}{{end}}'

readonly PART_OF=app.kubernetes.io/part-of # what every object of ours is labelled with

workloads() { # lines of kind, name, ready, wanted, updated, all replicas, generation, observed generation
  k get deployments,statefulsets --selector "$PART_OF=threads-cluster" --output "go-template=$ROWS"
}

readonly SETTLED='$3 == $4 && $5 == $4 && $6 == $4 && $8 >= $7'

unsettled() { workloads | awk "!($SETTLED)"; }

ready_pod() { # ready_pod NAME: a pod of the workload that is ready, or nothing
  k get pods --selector "app.kubernetes.io/name=$1" --field-selector status.phase=Running --output \
    'go-template={{range .items}}{{$name := .metadata.name}}{{$gone := .metadata.deletionTimestamp}}{{range .status.conditions}}{{if and (eq .type "Ready") (eq .status "True") (not $gone)}}{{$name}}{{"\n"}}{{end}}{{end}}{{end}}' |
    head -n 1
}

in_a_coordinator() { # in_a_coordinator SCRIPT ARGUMENT...: runs a Python script in a replica; 1 when none is ready
  local pod
  pod=$(ready_pod coordinator)
  [[ -n $pod ]] || return 1
  k exec --stdin "$pod" --container coordinator -- python3 - "${@:2}" <"$1"
}
