# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Chooses the names and tags of images, and transfers the images to a Kubernetes cluster.

REGISTRY=''         # prefix of image names
TAG=''              # tag of images without an entry in TAGS
declare -gA TAGS=() # tags by image name
BY_CONTENT=''       # yes: the tags of local builds depend on their content
readonly OWN_IMAGES=(coordinator cpu-worker gpu-worker runner web nginx)

image() { # image NAME: print the image name that the nodes use
  printf '%sthreads/%s:%s\n' "${REGISTRY:+${REGISTRY%/}/}" "$1" "${TAGS[$1]:-$TAG}"
}

choose_tags() { # choose default tags: by content with --load, otherwise the tags of the last start if it had this version
  [[ -z $TAG ]] || return 0
  if [[ -n $LOAD ]]; then
    BY_CONTENT=yes
  elif [[ $(deployed version) == "$(version)" && ${REGISTRY:-$(deployed registry)} == "$(deployed registry)" ]]; then
    deployed_tags
  fi
}

deployed_tags() { # use the tags of the last start
  local pair
  TAG=$(deployed tag)
  for pair in $(deployed tags); do TAGS[${pair%%=*}]=${pair#*=}; done
}

noted_tags() { # print TAGS on one line
  local name list=()
  for name in "${!TAGS[@]}"; do list+=("$name=${TAGS[$name]}"); done
  printf '%s' "${list[*]}"
}

# -- transferring images ----------------------------------------------------------------------------------------------

load_images() { # push the images to a registry or load them into this machine's node
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
  say "Transferring ${#images[@]} images to the cluster ..."
  if [[ -n $REGISTRY ]]; then push_images "${images[@]}"; else give_images "${images[@]}"; fi
  # Otherwise Docker would keep every version of these images.
  [[ -z $BY_CONTENT ]] || run_quiet docker image rm "${images[@]}"
}

built() { printf 'threads/%s:%s\n' "$1" "$(version)"; } # built NAME: print the image name that Compose uses

build_images() { # build_images NAME...
  [[ -n $DRY ]] || command -v docker >/dev/null || fail 3 "--load needs Docker to build the images." \
    "Without --load, the nodes pull $(image "$1")."
  run_quiet docker compose --profile gpu --profile runner build "$@"
}

tag_by_content() { # tag_by_content NAME...: tag by content, so that a pod is replaced only if its image has changed
  local name
  for name in "$@"; do TAGS[$name]=$(version)-$(content "$(built "$name")"); done
  write_manifests
}

# Image IDs are unsuitable: Docker with the containerd store assigns a new ID to each build, even with the same content.
content() { # content IMAGE: print 12 digits that depend on the image's files and configuration
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
    run_quiet docker push "$name" || fail 1 "cannot push $name." "Log in: docker login ${REGISTRY%%/*}"
  done
}

give_images() { # load images with the tool that created the cluster: kind, k3d, minikube, or else containerd on this machine
  case $CONTEXT in
    kind-*) run_quiet kind load docker-image --name "${CONTEXT#kind-}" "$@" ;;
    k3d-*) run_quiet k3d image import --cluster "${CONTEXT#k3d-}" "$@" ;;
    minikube) run_quiet minikube image load "$@" ;;
    *) import_images "$@" ;;
  esac
}

import_images() { # CONTAINERD_ADDRESS: socket of the node's containerd
  local others=() new=() socket=${CONTAINERD_ADDRESS:-/run/containerd/containerd.sock}
  [[ -n ${CONTAINERD_ADDRESS:-} || ! -S /run/k3s/containerd/containerd.sock ]] || socket=/run/k3s/containerd/containerd.sock
  if [[ -n $DRY ]]; then
    quoted docker save "$@" "|" ctr --address "$socket" --namespace k8s.io images import -
    return
  fi
  if [[ ! -S $socket ]] || ! command -v ctr >/dev/null; then
    fail 3 "this machine has no containerd socket of a node ($socket), and no registry was named." \
      "Use --registry HOST/PATH or set CONTAINERD_ADDRESS=SOCKET"
  fi
  mapfile -t others < <(images_of_others)
  mapfile -t new < <(lacking "$socket" "$@" "${others[@]}")
  ((${#new[@]})) || return 0
  docker save "${new[@]}" | ctr --address "$socket" --namespace k8s.io images import - >/dev/null ||
    fail 1 "containerd did not import the images." "Try: sudo ./deploy-cluster.sh ..."
}

images_of_others() { # print images of other projects, such as Redis, that Docker has here, so that the node need not pull them
  local name
  sed -nE 's/^ *(- )?image: //p' "$WORK/manifests.yaml" | grep -v '^threads/' | sort -u | while read -r name; do
    ! docker image inspect "$name" >/dev/null 2>&1 || printf '%s\n' "$name"
  done
}

lacking() { # lacking SOCKET IMAGE...: print images that the node's containerd does not have, or has with other content
  local listed name id
  listed=$(ctr --address "$1" --namespace k8s.io images list)
  for name in "${@:2}"; do
    id=''
    # A tag that depends on the content identifies the image.
    [[ -n $BY_CONTENT && $name == threads/* ]] || id=$(docker image inspect --format '{{.Id}}' "$name")
    awk -v full="$(full_name "$name")" -v id="$id" '
      $1 == full { named = $3 }
      $1 == id { had = $3 }
      END { exit !(named && (id == "" || named == had)) }' <<<"$listed" || printf '%s\n' "$name"
  done
}

full_name() { # full_name IMAGE: print the name that containerd uses
  case $1 in
    *[.:]*/*) printf '%s\n' "$1" ;;
    */*) printf 'docker.io/%s\n' "$1" ;;
    *) printf 'docker.io/library/%s\n' "$1" ;;
  esac
}
