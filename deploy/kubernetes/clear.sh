# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands stop and cleanup on Kubernetes.

kubernetes_stop() {
  need_deployed
  stop_workloads
  [[ -n $DRY ]] || say "Stopped. Jobs and results remain in the volume of Redis. Start again: ./deploy-cluster.sh kubernetes"
}

stop_workloads() { # stop writers before Redis, so that Redis receives their last writes
  local rest
  stop_runners
  run_k scale deployment --selector "$PART_OF=threads-cluster" --replicas 0
  [[ -n $DRY ]] || await "$START_SECONDS" no_pods 'app.kubernetes.io/name in (coordinator, cpu-worker, gpu-worker)' ||
    fail 4 "workers and coordinators did not stop within $START_SECONDS s." "See: kubectl get pods --namespace $NAMESPACE"
  rest=$(workloads | awk '$1 == "StatefulSet" && $2 != "runner" { print $2 }' | paste -sd ' ' -)
  [[ -z $PRETENDED ]] || rest=redis
  # shellcheck disable=SC2086  # the names contain no blanks
  run_k scale statefulset $rest --replicas 0
  [[ -n $DRY ]] || await "$START_SECONDS" no_pods 'app.kubernetes.io/name=redis' ||
    fail 4 "Redis did not stop within $START_SECONDS s."
}

stop_runners() { # stop runners while coordinators are running, so that they can return their units
  [[ -n $(workloads | awk '$1 == "StatefulSet" && $2 == "runner"') ]] || return 0
  run_k scale statefulset runner --replicas 0
  [[ -n $DRY ]] || await "$START_SECONDS" no_pods 'app.kubernetes.io/name=runner' ||
    fail 4 "runners did not stop within $START_SECONDS s." "See: kubectl get pods --namespace $NAMESPACE"
}

# shellcheck disable=SC2016  # Go template for kubectl
readonly RUNNING='{{range .items}}{{if not .metadata.deletionTimestamp}}stays{{end}}{{range .status.containerStatuses}}{{if .state.running}}runs{{end}}{{end}}{{end}}'

no_pods() { # no_pods SELECTOR: true if all pods are being deleted and none is running, even if its node has not removed it yet
  [[ -z $(k get pods --selector "$1" --output "go-template=$RUNNING") ]]
}

kubernetes_cleanup() { # kubernetes_cleanup YES SECRETS
  [[ -z $2 ]] || wrong "cleanup on Kubernetes has no option --secrets."
  local theirs outside
  need_cluster
  if [[ -z $PRETENDED ]] && ! namespace_exists; then
    say "There is nothing to remove."
    [[ -n $DRY ]] || rm -f "$TARGET"
    return
  fi
  if namespace_goes; then # an earlier cleanup was interrupted
    say "Namespace $NAMESPACE is being deleted; waiting ..."
    gone wait "namespace/$NAMESPACE" --for delete
    return
  fi
  [[ -n $(deployed workers)$PRETENDED ]] ||
    fail 1 "namespace $NAMESPACE of context $CONTEXT does not contain a Threads Cluster; nothing was changed."
  theirs=$(others_things 2>"$WORK/log") || unreadable "other workloads"
  theirs=${theirs//$'\n'/ }
  [[ -z $theirs ]] || fail 1 "namespace $NAMESPACE contains other resources; nothing was deleted: $theirs" \
    "Delete or move them first, because cleanup deletes the whole namespace."
  say "This deletes the namespace $NAMESPACE of context $CONTEXT with all its resources:"
  k get deployments,statefulsets,services,persistentvolumeclaims,secrets --output name | sed 's/^/  /' >&2
  say "To keep a copy of the jobs, first run: ./deploy-cluster.sh backup FILE"
  say "Stored secrets can be decrypted only with their key. Print it: $(quoted "${KUBECTL[@]}" get secret passwords --output 'jsonpath={.data.secrets_key}')"
  sure "$1" "Delete everything listed?"
  outside=$(outside_address 2>/dev/null) || true
  [[ -z $outside ]] || forget_context "http://$outside"
  # Delete pods without waiting for open requests, so that a slow or failed node does not delay the cleanup.
  # Delete pods before the namespace, because Kubernetes rechecks it only after half of the pods' grace period.
  run_k delete deployments,replicasets,statefulsets --all --cascade=orphan
  run_k delete pods --all --grace-period 5 --timeout 15s 2>/dev/null ||
    run_k delete pods --all --grace-period 0 --force 2>/dev/null || true
  [[ -n $DRY ]] || say "Deleting namespace $NAMESPACE and its volumes, usually within 30 s ..."
  gone delete namespace "$NAMESPACE" --wait
}

gone() { # gone KUBECTL-ARGUMENT...: run a command that waits until the namespace is deleted
  # Namespaces are cluster-scoped, so kubectl would warn about the option --namespace.
  local KUBECTL=(kubectl --context "$CONTEXT")
  run_k "$@" --timeout 300s || fail 4 "namespace $NAMESPACE still exists after 300 s." \
    "Find the reason: kubectl get namespace $NAMESPACE --output yaml. Then run the same command again."
  [[ -n $(others) ]] || run_k delete priorityclasses threads-cluster-services threads-cluster-workers --ignore-not-found
  [[ -n $DRY ]] || rm -f "$TARGET"
  [[ -n $DRY ]] || say "Deleted. Volumes with the reclaim policy Retain still exist: kubectl get persistentvolumes"
}

others() { # print namespaces of other clusters of this project, which share the priority classes
  k get namespaces --selector app.kubernetes.io/part-of=threads-cluster --output name | grep -vx "namespace/$NAMESPACE" || true
}
