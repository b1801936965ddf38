# shellcheck shell=bash
# Sourced by deploy-cluster.sh: stop and cleanup of a cluster on Kubernetes.

kube_stop() {
  (($# == 0)) || wrong "stop takes no options."
  need_deployed
  stop_workloads
  [[ -n $DRY ]] || say "Stopped. Redis' volume keeps jobs and results; start again: ./deploy-cluster.sh kubernetes"
}

stop_workloads() { # those first that write, so that Redis ends with all they had to say
  local rest
  stop_runners
  run_k scale deployment --selector "$PART_OF=threads-cluster" --replicas 0
  [[ -n $DRY ]] || await "$START_SECONDS" no_pods 'app.kubernetes.io/name in (coordinator, cpu-worker, gpu-worker)' ||
    fail 4 "workers and coordinators have not ended within $START_SECONDS s." "See: kubectl get pods --namespace $NAMESPACE"
  rest=$(workloads | awk '$1 == "StatefulSet" && $2 != "runner" { print $2 }' | paste -sd ' ' -)
  # shellcheck disable=SC2086  # names without blanks
  run_k scale statefulset $rest --replicas 0
  [[ -n $DRY ]] || await "$START_SECONDS" no_pods 'app.kubernetes.io/name=redis' ||
    fail 4 "Redis has not ended within $START_SECONDS s."
}

stop_runners() { # while coordinators answer, programs are ended and their units given back
  [[ -n $(workloads | awk '$1 == "StatefulSet" && $2 == "runner"') ]] || return 0
  run_k scale statefulset runner --replicas 0
  [[ -n $DRY ]] || await "$START_SECONDS" no_pods 'app.kubernetes.io/name=runner' ||
    fail 4 "runners have not ended within $START_SECONDS s." "See: kubectl get pods --namespace $NAMESPACE"
}

# shellcheck disable=SC2016  # a template
readonly RUNNING='{{range .items}}{{if not .metadata.deletionTimestamp}}stays{{end}}{{range .status.containerStatuses}}{{if .state.running}}runs{{end}}{{end}}{{end}}'

no_pods() { # no_pods SELECTOR: all are to go and none runs any more, whether or not its node has put it away yet
  [[ -z $(k get pods --selector "$1" --output "go-template=$RUNNING") ]]
}

kube_cleanup() { # cleanup [--yes]
  [[ $# -eq 0 || ($# -eq 1 && $1 == --yes) ]] || wrong "cleanup of a cluster on Kubernetes takes no options but --yes."
  local theirs
  need_cluster
  if ! namespace_exists; then
    say "There is nothing to remove."
    [[ -n $DRY ]] || rm -f "$TARGET"
    return
  fi
  if namespace_goes; then # an earlier cleanup was interrupted
    say "Namespace $NAMESPACE is being removed; waiting for its end ..."
    gone wait "namespace/$NAMESPACE" --for delete
    return
  fi
  [[ -n $(deployed workers) ]] ||
    fail 1 "namespace $NAMESPACE of context $CONTEXT holds no Threads Cluster; it is not touched."
  theirs=$(others_things 2>"$WORK/log") || unreadable "what others run"
  theirs=${theirs//$'\n'/ }
  [[ -z $theirs ]] || fail 1 "namespace $NAMESPACE holds what is not of Threads Cluster; nothing was removed: $theirs" \
    "Remove or move that first: the namespace goes with all that is in it."
  say "This removes the namespace $NAMESPACE of context $CONTEXT with all that is in it:"
  k get deployments,statefulsets,services,persistentvolumeclaims,secrets --output name | sed 's/^/  /' >&2
  say "A copy of the jobs first: ./deploy-cluster.sh backup FILE"
  say "Stored secrets open with their key only: $(quoted "${KUBECTL[@]}" get secret passwords --output 'jsonpath={.data.secrets_key}')"
  sure "${1:+yes}" "Remove all this?"
  # What serves need not wait until nobody asks any more. Pods go before their namespace does: while it has some,
  # Kubernetes looks at it again only after half the time that they were given to end. A node that is slow, or gone,
  # holds nothing up.
  run_k delete deployments,replicasets,statefulsets --all --cascade=orphan
  run_k delete pods --all --grace-period 5 --timeout 15s 2>/dev/null ||
    run_k delete pods --all --grace-period 0 --force 2>/dev/null || true
  [[ -n $DRY ]] || say "Waiting for the end of namespace $NAMESPACE and of its volumes, half a minute mostly ..."
  gone delete namespace "$NAMESPACE" --wait
}

gone() { # gone KUBECTL-ARGUMENT...: what ends when the namespace has
  # Namespaces are in none: kubectl would warn of that.
  local KUBECTL=(kubectl --context "$CONTEXT")
  run_k "$@" --timeout 300s || fail 4 "namespace $NAMESPACE is not gone after 300 s." \
    "What holds it: kubectl get namespace $NAMESPACE --output yaml. Then run the same command again."
  [[ -n $(others) ]] || run_k delete priorityclasses threads-cluster-services threads-cluster-workers --ignore-not-found
  [[ -n $DRY ]] || rm -f "$TARGET"
  [[ -n $DRY ]] || say "Removed. Volumes whose class keeps them stay: kubectl get persistentvolumes"
}

others() { # namespaces of other clusters of ours, which use the same priority classes
  k get namespaces --selector app.kubernetes.io/part-of=threads-cluster --output name | grep -vx "namespace/$NAMESPACE" || true
}
