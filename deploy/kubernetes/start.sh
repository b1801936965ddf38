# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands kubernetes and scale.

LOAD=''
MANIFESTS='' # file that receives the manifests

cmd_kubernetes() { # kubernetes [N [G]] [--overlay O] [--registry R] [--tag T] [--load] [--manifests FILE]
  local counts=()
  while (($#)); do
    case $1 in
      --overlay) OVERLAY=$(overlay_folder "${2:-}") && shift ;;
      --registry) REGISTRY=${2:-} && shift ;;
      --tag) TAG=${2:-} && shift ;;
      --load) LOAD=yes ;;
      --manifests)
        [[ -n ${2:-} ]] || wrong "--manifests needs the name of a file."
        MANIFESTS=$(from_caller "$2")
        [[ -d $(dirname "$MANIFESTS") ]] || fail 2 "folder $(dirname "$2") does not exist."
        shift
        ;;
      -*) wrong "kubernetes has no option '$1'." ;;
      *) counts+=("$1") ;;
    esac
    (($# == 0)) || shift
  done
  ((${#counts[@]} <= 2)) || wrong "kubernetes accepts two numbers: all workers, and GPU workers among them."
  need_cluster
  choose_tags
  as_before "${counts[@]}"
  start_cluster
}

as_before() { # as_before [N [G]]: use values of the last start for missing arguments
  ALL=${1:-$(deployed workers)}
  ALL=${ALL:-1}
  GPUS=${2:-}
  [[ -n $GPUS || $# -gt 0 ]] || GPUS=$(deployed gpu_workers)
  GPUS=${GPUS:-0}
  check_worker_counts
  [[ -n $OVERLAY ]] || OVERLAY=$(deployed overlay)
  [[ -n $OVERLAY ]] || OVERLAY=k8s/overlays/dev
  [[ -n $REGISTRY ]] || REGISTRY=$(deployed registry)
  [[ -n $TAG ]] || TAG=$(version)
  [[ $TAG =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] ||
    wrong "a tag must have up to 128 letters, digits and _ . -, and must not start with . or -; got '$TAG'."
  [[ $REGISTRY =~ ^$|^[a-z0-9._-]+(:[0-9]{1,5})?(/[a-z0-9._-]+)*/?$ ]] ||
    wrong "a registry must be HOST, HOST:PORT or HOST/PATH in lowercase, without https://; got '$REGISTRY'."
}

check_worker_counts() {
  number "the number of workers" "$ALL" 1 10000
  number "the number of GPU workers" "$GPUS" 0 10000
  ((GPUS <= ALL)) ||
    wrong "$GPUS GPU workers exceed the total of $(counted "$ALL" worker); \`kubernetes 5 2\` starts 3 CPU workers and 2 GPU workers."
}

start_cluster() {
  check_namespace
  fetch_passwords
  render
  check_rights
  check_apis
  check_version
  check_storage
  check_gpu_nodes
  ! scales_itself || note "$OVERLAY has an autoscaler of CPU workers; the number $ALL is ignored."
  [[ -z $LOAD ]] || load_images
  apply
  [[ -n $DRY ]] || tell_reached
}

apply() {
  namespace_exists || run_k create namespace "$NAMESPACE"
  keep_passwords
  # Delete the pod of an interrupted restore: two Redis servers would write to the volume.
  [[ -z $(k get pod redis-restore --ignore-not-found --output name) ]] || run_k delete pod redis-restore --wait
  # The manifests contain passwords.
  [[ -z $MANIFESTS ]] || install -m 0600 "$WORK/manifests.yaml" "$MANIFESTS"
  if [[ -n $DRY ]]; then
    printf '# %s objects of %s, with %s workers, %s on GPUs\n' \
      "$(awk '/^kind:/ { count++ } END { print count ? count : "all" }' "$WORK/manifests.yaml")" "$OVERLAY" "$ALL" "$GPUS"
    quoted "${KUBECTL[@]}" apply --server-side --force-conflicts --filename "${MANIFESTS:-MANIFESTS}"
  else
    remember
    apply_manifests
  fi
  take_volumes_again
  drop_gpu_deployment
  replace_stuck
  wake_workers
  give_runner_tokens
  [[ -n $DRY ]] || await_settled
}

apply_manifests() { # apply on the server, because dashboards are too large for the annotation of client-side apply
  k apply --server-side --force-conflicts --filename "$WORK/manifests.yaml" >"$WORK/applied" 2>"$WORK/log" && return
  grep -v '^Warning' "$WORK/log" | tail -n 5 | redacted >&2
  fail 1 "the cluster did not accept the manifests; see the lines above." "Then run the same command again."
}

take_volumes_again() { # release volumes of an earlier cluster in this namespace; otherwise their claims would wait forever
  [[ $FEATURES == *'kind: PersistentVolume'* ]] || return 0
  local name of
  while read -r name of; do
    [[ $of == "$NAMESPACE" ]] || continue
    note "volume $name belongs to an earlier cluster in this namespace and is reused with its data."
    run_k patch persistentvolume "$name" --type merge --patch '{"spec": {"claimRef": null}}'
  done < <(k get persistentvolumes --selector "$PART_OF=threads-cluster" --output "go-template=$LEFT" 2>/dev/null)
}
# shellcheck disable=SC2016  # Go template for kubectl
readonly LEFT='{{range .items}}{{if eq .status.phase "Released"}}{{.metadata.name}} {{.spec.claimRef.namespace}}{{"\n"}}{{end}}{{end}}'

replace_stuck() { # a StatefulSet never replaces a pod that was never ready, even if the new version fixes it
  local name
  for name in $(k get statefulsets --selector "$PART_OF=threads-cluster" --output "go-template=$STUCK" 2>/dev/null); do
    run_k delete pod "$name-0" --ignore-not-found --wait=false
  done
}
# shellcheck disable=SC2016  # Go template for kubectl
readonly STUCK='{{range .items}}{{if and (ne .status.currentRevision .status.updateRevision) (not .status.readyReplicas)}}{{.metadata.name}} {{end}}{{end}}'

drop_gpu_deployment() { # delete GPU workers of an earlier start, which would keep running
  ((GPUS == 0)) && [[ -n $(k get deployment gpu-workers --ignore-not-found --output name 2>/dev/null) ]] || return 0
  run_k delete deployment/gpu-workers service/gpu-worker serviceaccount/gpu-workers
}

wake_workers() { # an autoscaler ignores a deployment that `stop` scaled to zero
  scales_itself || return 0
  [[ $(k get deployment cpu-workers --output 'jsonpath={.spec.replicas}' 2>/dev/null) == 0 ]] || return 0
  run_k scale deployment cpu-workers --replicas 2
}

# -- scale ------------------------------------------------------------------------------------------------------------

kubernetes_autoscale() {
  fail 2 "on Kubernetes, an autoscaler in the cluster scales workers, not this script." \
    "To scale by CPU usage, use --overlay prod. To scale by needed workers, use KEDA: k8s/components/keda, docs/kubernetes.md"
}

kubernetes_scale() { # scale N [--gpu G]
  local all='' gpus=''
  while (($#)); do
    case $1 in
      --gpu) gpus=${2:-none} && shift ;;
      -*) wrong "scale has no option '$1'." ;;
      *) if [[ -z $all ]]; then all=$1; else wrong "scale accepts one number: the total number of workers."; fi ;;
    esac
    (($# == 0)) || shift
  done
  [[ -n $all ]] || wrong "scale needs a number: the total number of workers."
  need_deployed
  deployed_tags
  as_before "$all" "${gpus:-$(deployed gpu_workers)}"
  fetch_passwords
  render
  ! scales_itself || ((GPUS != $(deployed gpu_workers))) ||
    fail 2 "$OVERLAY has an autoscaler of CPU workers." "See: kubectl get hpa --namespace $NAMESPACE"
  check_gpu_nodes
  apply
  [[ -n $DRY ]] || say "$(counted $((ALL - GPUS)) "CPU worker"), $(counted "$GPUS" "GPU worker")."
}

# -- waiting for readiness --------------------------------------------------------------------------------------------

readonly REPEAT_SECONDS=${REPEAT_SECONDS:-15}

await_settled() { # wait until all workloads are ready; print the missing ones on each change, and repeat the message at an interval
  local since=$SECONDS until=$((SECONDS + START_SECONDS)) left said='' again=0 now
  while true; do
    left=$(unsettled)
    [[ -n $left ]] || return 0
    now=$(awk '{ printf "%s%s %d/%d", (NR > 1 ? ", " : ""), $2, ($5 < $3 ? $5 : $3), $4 }' <<<"$left")
    if [[ $now != "$said" ]] || ((SECONDS >= again)); then
      say "$(printf '%4d s' $((SECONDS - since)))  waiting for: $now"
      said=$now again=$((SECONDS + REPEAT_SECONDS))
    fi
    fail_early
    ((SECONDS < until)) || unready "$(not_ready)"
    sleep 1
  done
}

# shellcheck disable=SC2016  # Go template for kubectl
readonly REASONS='{{range .items}}{{if not .metadata.deletionTimestamp}}{{$name := .metadata.name}}{{range .status.containerStatuses}}{{if .state.waiting}}{{$name}} {{.state.waiting.reason}} {{.image}} {{.restartCount}} {{or .state.waiting.message "-"}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}'

waiting_reasons() { k get pods --output "go-template=$REASONS" 2>/dev/null || true; } # print pod, reason, image, restarts and message of each waiting container

fail_early() { # fail for reasons that waiting cannot fix, after five consecutive observations
  local bad
  bad=$(waiting_reasons | awk '
    $2 ~ /^(ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|CreateContainerConfigError)$/ ||
    ($2 == "CrashLoopBackOff" && $4 > 3)' | head -n 1)
  if [[ -z $bad ]]; then
    LOOKS=0
    return
  fi
  ((++LOOKS >= 5)) || return 0
  local pod reason image restarts message
  read -r pod reason image restarts message <<<"$bad"
  [[ $reason != CrashLoopBackOff ]] || unready "pod $pod has crashed $restarts times."
  [[ $reason != CreateContainerConfigError ]] ||
    fail 1 "pod $pod cannot start: $message" "See: kubectl describe pod $pod --namespace $NAMESPACE"
  fail 1 "the nodes cannot pull the image $image ($reason)." \
    "Provide it: run the same command with --load, or with --registry HOST/PATH --load (docs/kubernetes.md)" \
    "Find the reason: kubectl describe pod $pod --namespace $NAMESPACE"
}
LOOKS=0

unready() { # unready WHY: print details of up to three pods that are not ready, crashed ones first
  local pod
  k get pods >&2 || true
  while read -r pod; do
    say "The last lines of $pod:"
    { k logs "$pod" --tail 6 --all-containers 2>&1 || true; } | redacted | sed 's/^/    /' >&2
    k get events --field-selector "type=Warning,involvedObject.name=$pod" --no-headers 2>/dev/null | tail -n 2 | sed 's/^/    /' >&2 || true
  done < <(k get pods --no-headers | awk '{ split($2, ready, "/") } ready[1] != ready[2] { print ($3 == "Running"), $1 }' | sort | awk 'NR < 4 { print $2 }')
  fail 4 "$1" \
    "See: ./deploy-cluster.sh status, kubectl describe pod NAME --namespace $NAMESPACE; then run the same command again." \
    "To wait longer: START_SECONDS=1200 ./deploy-cluster.sh ..."
}

not_ready() { # print the error message after a timeout
  printf 'not everything is ready after %s s: %s.' "$START_SECONDS" "$(unsettled | awk '{ print $2 " has " $3 " of " $4 }' | paste -sd , - | sed 's/,/, /g')"
}

outside_address() { # print the IP address or the host name of the load balancer, if it has one
  k get service load-balancer-service --output \
    'jsonpath={.status.loadBalancer.ingress[0].ip}{.status.loadBalancer.ingress[0].hostname}'
}

tell_reached() {
  local type outside
  type=$(k get service load-balancer-service --output 'jsonpath={.spec.type}')
  outside=$(outside_address)
  say ""
  say "The cluster is up in namespace $NAMESPACE of context $CONTEXT: $(counted $((ALL - GPUS)) "CPU worker"), $(counted "$GPUS" "GPU worker")."
  if [[ -n $outside ]]; then
    say "  Pages and API  http://$outside"
    keep_context "http://$outside"
  else
    [[ $type != LoadBalancer ]] ||
      note "the load balancer has no address yet: kubectl get service load-balancer-service -n $NAMESPACE --watch"
    say "  Pages and API  http://127.0.0.1:8080, while this command is running:"
    say "                 $(quoted "${KUBECTL[@]}" port-forward service/load-balancer-service 8080:80)"
  fi
  say "  Token          $(quoted "${KUBECTL[@]}" get secret passwords --output 'jsonpath={.data.cluster_token}') | base64 -d"
  ! grep -q 'name: grafana$' "$WORK/manifests.yaml" || say "  Grafana        $(quoted "${KUBECTL[@]}" port-forward service/grafana 3001:3000)"
  say "Next: ./deploy-cluster.sh status    ./deploy-cluster.sh scale N    ./deploy-cluster.sh logs -f"
}
