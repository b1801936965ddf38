# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Checks a Kubernetes cluster before the first change, without side effects.

check_rights() { # fail if this user cannot create the resources in the manifests
  local what missing=()
  for what in deployments.apps statefulsets.apps services configmaps secrets networkpolicies.networking.k8s.io; do
    k auth can-i --quiet create "$what" 2>/dev/null || missing+=("$what")
  done
  namespace_exists || k auth can-i --quiet create namespaces 2>/dev/null || missing+=(namespaces)
  ((${#missing[@]} == 0)) || fail 3 "this user cannot create ${missing[*]} in namespace $NAMESPACE." \
    "Ask an administrator of the cluster of context $CONTEXT. Show your rights: kubectl auth can-i --list --namespace $NAMESPACE"
}

namespace_exists() {
  local name
  name=$(k get namespace "$NAMESPACE" --ignore-not-found --output name 2>"$WORK/log") || unreadable "the Namespace object"
  [[ -n $name ]]
}

namespace_goes() { [[ $(k get namespace "$NAMESPACE" --ignore-not-found --output 'jsonpath={.status.phase}') == Terminating ]]; }

#: Selector of foreign volumes. Volumes have no label except the name of their workload.
readonly VOLUMES='app.kubernetes.io/name notin (redis,sentinel,prometheus,grafana,runner)'

others_things() { # print the resources in the namespace that do not belong to this project
  k get deployments,statefulsets,daemonsets,cronjobs,services --selector "$PART_OF!=threads-cluster" --output name &&
    k get persistentvolumeclaims --selector "$PART_OF!=threads-cluster,$VOLUMES" --output name
}

check_namespace() { # refuse a namespace with other workloads: network policies could break them, and cleanup deletes the namespace
  local theirs
  namespace_exists || return 0
  ! namespace_goes || fail 1 "namespace $NAMESPACE is being deleted." \
    "Wait until it is deleted, or use another with --namespace. Find the reason: kubectl get namespace $NAMESPACE --output yaml"
  [[ -z $(deployed workers) ]] || return 0
  # A user without the right to list all kinds can still use the namespace.
  theirs=$({ others_things 2>/dev/null || true; } | head -n 5 | paste -sd ' ' -)
  [[ -z $theirs ]] || fail 1 "namespace $NAMESPACE of context $CONTEXT contains other resources: $theirs" \
    "Use a separate namespace: --namespace NAME"
}

check_apis() { # fail if the cluster does not serve an API that the manifests use
  [[ -z $PRETENDED ]] || return 0
  local known api missing
  known=$'\n'$(k api-versions)$'\n'
  missing=$(sed -n 's/^apiVersion: //p' "$WORK/manifests.yaml" | sort -u | while read -r api; do
    [[ $known == *$'\n'"$api"$'\n'* ]] || printf '%s ' "$api"
  done)
  [[ -n $missing ]] || return 0
  [[ $missing != *keda* ]] || fail 3 "KEDA is not installed in this Kubernetes cluster, which does not serve $missing" \
    "Install it: https://keda.sh/docs/latest/deploy"
  fail 3 "this Kubernetes cluster does not serve: ${missing% }" "Kubernetes $OLDEST_API or later is required; see: kubectl version"
}

check_version() { # fail if the cluster would reject or ignore a field of the manifests
  [[ -n $SERVER_VERSION ]] && ! at_least "$SERVER_VERSION" "$OLDEST_API" || return 0
  ! grep -q 'unhealthyPodEvictionPolicy:' "$WORK/manifests.yaml" ||
    fail 3 "this Kubernetes cluster has version $SERVER_VERSION, which does not support unhealthyPodEvictionPolicy." \
      "Kubernetes $OLDEST_API or later is required; see: kubectl version"
}

readonly DEFAULT_CLASS='{{range .items}}{{index .metadata.annotations "storageclass.kubernetes.io/is-default-class"}}{{"\n"}}{{end}}'

check_storage() { # fail if Redis would not get a volume
  [[ -z $PRETENDED ]] || return 0
  local classes
  classes=$(k get storageclasses --output "go-template=$DEFAULT_CLASS" 2>/dev/null) || return 0
  [[ $'\n'$classes$'\n' == *$'\n'true$'\n'* ]] || grep -q 'storageClassName:' "$WORK/manifests.yaml" ||
    fail 3 "this Kubernetes cluster has no default storage class, so Redis would get no volume." \
      "See: kubectl get storageclass. Mark one as default, or name one in your own overlay (docs/kubernetes.md)"
}

check_gpu_nodes() { # fail if the nodes have too few GPUs
  ((GPUS)) && [[ -z $PRETENDED ]] || return 0
  local there way="Without GPU workers: ./deploy-cluster.sh kubernetes $ALL 0"
  there=$(k get nodes --output 'go-template={{range .items}}{{or (index .status.allocatable "nvidia.com/gpu") 0}}{{"\n"}}{{end}}' 2>/dev/null |
    awk '{ sum += $1 } END { print sum + 0 }')
  ((there)) || fail 3 "$GPUS GPU workers were requested, but no node offers nvidia.com/gpu." "$way" \
    "To use GPUs, install NVIDIA's device plugin: https://github.com/NVIDIA/k8s-device-plugin"
  ((GPUS <= there)) || fail 3 "$GPUS GPU workers were requested, but the nodes offer only $there GPUs; each worker uses one." \
    "./deploy-cluster.sh kubernetes $ALL $there"
}
