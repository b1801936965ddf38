# shellcheck shell=bash
# Sourced by deploy-cluster.sh: names and tags of our images, and how images get to a Kubernetes.

REGISTRY=''         # prefix of our images' names
TAG=''              # of our images, but for those in TAGS
declare -gA TAGS=() # by name, where each has its own
BY_CONTENT=''       # yes: what is built here is tagged by what is in it
readonly OWN_IMAGES=(coordinator cpu-worker gpu-worker runner web nginx)

image() { # image NAME: as the nodes fetch it
  printf '%sthreads/%s:%s\n' "${REGISTRY:+${REGISTRY%/}/}" "$1" "${TAGS[$1]:-$TAG}"
}

choose_tags() { # where none was given: by content with --load, else those of the last start, of this version
  [[ -z $TAG ]] || return 0
  if [[ -n $LOAD ]]; then
    BY_CONTENT=yes
  elif [[ $(deployed version) == "$(version)" && ${REGISTRY:-$(deployed registry)} == "$(deployed registry)" ]]; then
    deployed_tags
  fi
}

deployed_tags() { # as they were at the last start
  local pair
  TAG=$(deployed tag)
  for pair in $(deployed tags); do TAGS[${pair%%=*}]=${pair#*=}; done
}

noted_tags() { # TAGS in one line
  local name list=()
  for name in "${!TAGS[@]}"; do list+=("$name=${TAGS[$name]}"); done
  printf '%s' "${list[*]}"
}

# -- bringing them ----------------------------------------------------------------------------------------------------

load_images() { # into a registry, or into this machine's node
  local name names=() images=()
  for name in "${OWN_IMAGES[@]}"; do
    [[ $name == gpu-worker ]] && ((GPUS == 0)) && continue
    [[ $name == runner ]] && ! has_runner && continue
    names+=("$name")
  done
  build_images "${names[@]}"
  [[ -z $BY_CONTENT ]] || tag_by_content "${names[@]}"
  for name in "${names[@]}"; do
    images+=("$(image "$name")")
    [[ $(image "$name") == "$(built "$name")" ]] || run_quiet docker tag "$(built "$name")" "$(image "$name")"
  done
  say "Bringing ${#images[@]} images to the cluster ..."
  if [[ -n $REGISTRY ]]; then push_images "${images[@]}"; else give_images "${images[@]}"; fi
  # Docker would keep every version for these names.
  [[ -z $BY_CONTENT ]] || run_quiet docker image rm "${images[@]}"
}

built() { printf 'threads/%s:%s\n' "$1" "$(version)"; } # built NAME: as Compose names it

build_images() { # build_images NAME...
  command -v docker >/dev/null || fail 3 "--load needs Docker, which has or builds the images." \
    "Without --load, the nodes fetch $(image "$1") themselves."
  run_quiet docker compose --profile gpu --profile runner build "$@"
}

tag_by_content() { # tag_by_content NAME...: a pod is replaced when its image has changed, and only then
  local name
  for name in "$@"; do TAGS[$name]=$(version)-$(content "$(built "$name")"); done
  write_manifests
}

# An image's id does not do: Docker with containerd's store gives each build a new one, whatever is in it.
content() { # content IMAGE: 12 digits that depend on its files and on how it starts
  if [[ -n $DRY ]]; then
    printf 'CONTENT\n'
    return
  fi
  docker image inspect --format '{{json .RootFS.Layers}} {{json .Config}}' "$1" >"$WORK/content"
  sha256 "$WORK/content" | cut -c -12
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
    id=''
    # A tag by content says enough.
    [[ -n $BY_CONTENT && $name == threads/* ]] || id=$(docker image inspect --format '{{.Id}}' "$name")
    awk -v full="$(full_name "$name")" -v id="$id" '
      $1 == full { named = $3 }
      $1 == id { had = $3 }
      END { exit !(named && (id == "" || named == had)) }' <<<"$listed" || printf '%s\n' "$name"
  done
}

full_name() { # full_name IMAGE: as containerd names it
  case $1 in
    *[.:]*/*) printf '%s\n' "$1" ;;
    */*) printf 'docker.io/%s\n' "$1" ;;
    *) printf 'docker.io/library/%s\n' "$1" ;;
  esac
}
