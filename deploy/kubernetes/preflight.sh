# shellcheck shell=bash
# Sourced by deploy-cluster.sh: what must be true of a Kubernetes before anything in it is changed, and how images get
# there. Checks have no effect.

check_rights() { # this user may make what the manifests hold
  local what missing=()
  for what in deployments.apps statefulsets.apps services configmaps secrets networkpolicies.networking.k8s.io; do
    k auth can-i --quiet create "$what" 2>/dev/null || missing+=("$what")
  done
  namespace_exists || k auth can-i --quiet create namespaces 2>/dev/null || missing+=(namespaces)
  ((${#missing[@]} == 0)) || fail 3 "this user may not create ${missing[*]} in namespace $NAMESPACE." \
    "Ask an administrator of the cluster of context $CONTEXT; seen by: kubectl auth can-i --list --namespace $NAMESPACE"
}

namespace_exists() { [[ -n $(k get namespace "$NAMESPACE" --ignore-not-found --output name 2>/dev/null) ]]; }

check_apis() { # every API that the manifests use is served
  local known api missing
  known=$(k api-versions)
  missing=$(sed -n 's/^apiVersion: //p' "$WORK/manifests.yaml" | sort -u | while read -r api; do
    grep -qx -- "$api" <<<"$known" || printf '%s ' "$api"
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
  grep -qx true <<<"$classes" || grep -q 'storageClassName:' "$WORK/manifests.yaml" ||
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

# -- images -----------------------------------------------------------------------------------------------------------

load_images() { # into a registry, or into this machine's node
  local name names=() images=()
  for name in "${OWN_IMAGES[@]}"; do
    [[ $name == gpu-worker ]] && ((GPUS == 0)) && continue
    names+=("$name")
    images+=("$(image "$name")")
  done
  build_images "${names[@]}"
  say "Bringing ${#images[@]} images to the cluster ..."
  if [[ -n $REGISTRY ]]; then push_images "${images[@]}"; else give_images "${images[@]}"; fi
}

build_images() { # build_images NAME...
  local name
  command -v docker >/dev/null || fail 3 "--load needs Docker, which has or builds the images." \
    "Without --load, the nodes fetch $(image "$1") themselves."
  run_quiet docker compose --profile gpu build "$@"
  for name in "$@"; do
    [[ $(image "$name") == "threads/$name:$(version)" ]] ||
      run_quiet docker tag "threads/$name:$(version)" "$(image "$name")"
  done
}

push_images() {
  local name
  for name in "$@"; do
    run_quiet docker push "$name" || fail 1 "$name could not be pushed." "Log in: docker login ${REGISTRY%%/*}"
  done
}

give_images() { # by what made the cluster: kind, k3d, minikube, else containerd on this machine
  case $CONTEXT in
    kind-*) run_quiet kind load docker-image --name "${CONTEXT#kind-}" "$@" ;;
    k3d-*) run_quiet k3d image import --cluster "${CONTEXT#k3d-}" "$@" ;;
    minikube) run_quiet minikube image load "$@" ;;
    *) import_images "$@" ;;
  esac
}

import_images() { # CONTAINERD_ADDRESS: the socket of the node's containerd
  local others=() new=() socket=${CONTAINERD_ADDRESS:-/run/containerd/containerd.sock}
  [[ -n ${CONTAINERD_ADDRESS:-} || ! -S /run/k3s/containerd/containerd.sock ]] || socket=/run/k3s/containerd/containerd.sock
  if [[ -n $DRY ]]; then
    quoted docker save "$@" "|" ctr --address "$socket" --namespace k8s.io images import -
    return
  fi
  if [[ ! -S $socket ]] || ! command -v ctr >/dev/null; then
    fail 3 "no node's containerd is on this machine ($socket), and no registry was named." \
      "Give --registry HOST/PATH, or CONTAINERD_ADDRESS=SOCKET"
  fi
  mapfile -t others < <(images_of_others)
  mapfile -t new < <(lacking "$socket" "$@" "${others[@]}")
  ((${#new[@]})) || return 0
  docker save "${new[@]}" | ctr --address "$socket" --namespace k8s.io images import - >/dev/null ||
    fail 1 "containerd did not take the images." "Try: sudo ./deploy-cluster.sh ..."
}

images_of_others() { # such as that of Redis: those that Docker has here, so that the node need not fetch them
  local name
  sed -nE 's/^ *(- )?image: //p' "$WORK/manifests.yaml" | grep -v '^threads/' | sort -u | while read -r name; do
    ! docker image inspect "$name" >/dev/null 2>&1 || printf '%s\n' "$name"
  done
}

lacking() { # lacking SOCKET IMAGE...: those that the node's containerd has not, or with other content
  local listed name id
  listed=$(ctr --address "$1" --namespace k8s.io images list)
  for name in "${@:2}"; do
    id=$(docker image inspect --format '{{.Id}}' "$name")
    awk -v full="$(full_name "$name")" -v id="$id" '
      $1 == full { named = $3 }
      $1 == id { had = $3 }
      END { exit !(named && named == had) }' <<<"$listed" || printf '%s\n' "$name"
  done
}

full_name() { # full_name IMAGE: as containerd names it
  case $1 in
    *[.:]*/*) printf '%s\n' "$1" ;;
    */*) printf 'docker.io/%s\n' "$1" ;;
    *) printf 'docker.io/library/%s\n' "$1" ;;
  esac
}
