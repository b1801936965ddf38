# shellcheck shell=bash
# Sourced by deploy-cluster.sh: what must be true of a Kubernetes before anything in it is changed. Checks have no effect.

check_rights() { # this user may make what the manifests hold
  local what missing=()
  for what in deployments.apps statefulsets.apps services configmaps secrets networkpolicies.networking.k8s.io; do
    k auth can-i --quiet create "$what" 2>/dev/null || missing+=("$what")
  done
  namespace_exists || k auth can-i --quiet create namespaces 2>/dev/null || missing+=(namespaces)
  ((${#missing[@]} == 0)) || fail 3 "this user may not create ${missing[*]} in namespace $NAMESPACE." \
    "Ask an administrator of the cluster of context $CONTEXT; seen by: kubectl auth can-i --list --namespace $NAMESPACE"
}

namespace_exists() {
  local name
  name=$(k get namespace "$NAMESPACE" --ignore-not-found --output name 2>"$WORK/log") || unreadable "the object Namespace"
  [[ -n $name ]]
}

namespace_goes() { [[ $(k get namespace "$NAMESPACE" --ignore-not-found --output 'jsonpath={.status.phase}') == Terminating ]]; }

#: Volumes have no label but the name of their workload.
readonly VOLUMES='app.kubernetes.io/name notin (redis,sentinel,prometheus,grafana,runner)'

others_things() { # lines of what others have in the namespace
  k get deployments,statefulsets,daemonsets,cronjobs,services --selector "$PART_OF!=threads-cluster" --output name &&
    k get persistentvolumeclaims --selector "$PART_OF!=threads-cluster,$VOLUMES" --output name
}

check_namespace() { # it gets rules that what others run in it would not survive, and cleanup removes it
  local theirs
  namespace_exists || return 0
  ! namespace_goes || fail 1 "namespace $NAMESPACE is being removed." \
    "Wait for its end, or take another with --namespace. What holds it: kubectl get namespace $NAMESPACE --output yaml"
  [[ -z $(deployed workers) ]] || return 0
  # Whoever may not list all kinds may have a namespace all the same.
  theirs=$({ others_things 2>/dev/null || true; } | head -n 5 | paste -sd ' ' -)
  [[ -z $theirs ]] || fail 1 "namespace $NAMESPACE of context $CONTEXT holds what is not of Threads Cluster: $theirs" \
    "Give it a namespace of its own: --namespace NAME"
}

check_apis() { # every API that the manifests use is served
  local known api missing
  known=$'\n'$(k api-versions)$'\n'
  missing=$(sed -n 's/^apiVersion: //p' "$WORK/manifests.yaml" | sort -u | while read -r api; do
    [[ $known == *$'\n'"$api"$'\n'* ]] || printf '%s ' "$api"
  done)
  [[ -n $missing ]] || return 0
  [[ $missing != *keda* ]] || fail 3 "KEDA is not installed in this cluster: it does not serve $missing" \
    "Install it: https://keda.sh/docs/latest/deploy"
  fail 3 "this cluster does not serve: ${missing% }" "Kubernetes $OLDEST_API or later is needed; see: kubectl version"
}

readonly DEFAULT_CLASS='{{range .items}}{{index .metadata.annotations "storageclass.kubernetes.io/is-default-class"}}{{"\n"}}{{end}}'

check_storage() { # Redis gets a volume
  local classes
  classes=$(k get storageclasses --output "go-template=$DEFAULT_CLASS" 2>/dev/null) || return 0
  [[ $'\n'$classes$'\n' == *$'\n'true$'\n'* ]] || grep -q 'storageClassName:' "$WORK/manifests.yaml" ||
    fail 3 "this cluster has no default storage class, so Redis would get no volume." \
      "See: kubectl get storageclass. Mark one as default, or name one in an overlay of your own (docs/kubernetes.md)"
}

check_gpu_nodes() { # as many GPUs as workers ask for
  ((GPUS)) || return 0
  local there way="Without GPU workers: ./deploy-cluster.sh kubernetes $ALL 0"
  there=$(k get nodes --output 'go-template={{range .items}}{{or (index .status.allocatable "nvidia.com/gpu") 0}}{{"\n"}}{{end}}' 2>/dev/null |
    awk '{ sum += $1 } END { print sum + 0 }')
  ((there)) || fail 3 "$GPUS GPU workers were asked for, and no node offers nvidia.com/gpu." "$way" \
    "With GPUs: install NVIDIA's device plugin, https://github.com/NVIDIA/k8s-device-plugin"
  ((GPUS <= there)) || fail 3 "$GPUS GPU workers were asked for, and the nodes offer $there GPUs; each worker takes one." \
    "./deploy-cluster.sh kubernetes $ALL $there"
}
