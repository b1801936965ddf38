# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Creates the passwords, and an overlay from which kubectl builds the manifests.
# The overlay is temporary, in $WORK. The files in k8s/ are never changed.

OVERLAY='' # kustomize folder; dev and prod are in k8s/overlays
ALL=''     # total number of workers
GPUS=''    # number of GPU workers
FEATURES='' # lines of the overlay's manifests that identify optional components

overlay_folder() { # overlay_folder NAME: print the overlay's folder in this checkout
  local folder=$1
  [[ -d k8s/overlays/$1 ]] && folder=k8s/overlays/$1
  folder=${folder#"$PWD"/}
  [[ -f $folder/kustomization.yaml && $folder != /* && $folder != *..* ]] ||
    wrong "--overlay needs dev, prod or a folder of this checkout with a kustomization.yaml; got '$1'."
  printf '%s\n' "${folder%/}"
}

render() { # build the manifests in $WORK/manifests.yaml
  mkdir -p "$WORK/tree/this"
  cp -R k8s prometheus grafana "$WORK/tree/"
  [[ $OVERLAY == k8s/* ]] || (mkdir -p "$WORK/tree/$OVERLAY" && cp -R "$OVERLAY/." "$WORK/tree/$OVERLAY/")
  cp -R "$SECRETS" "$WORK/tree/this/secrets"
  kubectl kustomize "$WORK/tree/$OVERLAY" >"$WORK/plain.yaml" 2>"$WORK/log" || unrendered
  FEATURES=$(grep -oE '^kind: (HorizontalPodAutoscaler|ScaledObject|PersistentVolume)$|secretName: (sentinel|runner-tokens)$' \
    "$WORK/plain.yaml") || true
  write_manifests
}

write_manifests() { # build $WORK/manifests.yaml again, for example after image tags have changed
  kustomization >"$WORK/tree/this/kustomization.yaml"
  kubectl kustomize "$WORK/tree/this" >"$WORK/manifests.yaml" 2>"$WORK/log" || unrendered
}

unrendered() { fail 1 "kubectl cannot build $OVERLAY: $(tail -n 1 "$WORK/log")" "See: kubectl kustomize $OVERLAY"; }

scales_itself() { # true if the overlay contains an autoscaler of CPU workers
  [[ $FEATURES == *HorizontalPodAutoscaler* || $FEATURES == *ScaledObject* ]]
}

kustomization() {
  printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n'
  printf 'namespace: %s\nresources: [../%s]\n' "$NAMESPACE" "$OVERLAY"
  printf 'labels: [{pairs: {%s: threads-cluster}}]\n' "$PART_OF"
  if ((GPUS)); then printf 'components: [../k8s/components/gpu]\n'; fi
  printf 'images:\n'
  local name image
  for name in "${OWN_IMAGES[@]}"; do
    image=$(image "$name")
    printf '  - {name: threads/%s, newName: %s, newTag: "%s"}\n' "$name" "${image%:*}" "${image##*:}"
  done
  counts
  printf 'configMapGenerator:\n'
  printf '  - name: deployment\n    options: {disableNameSuffixHash: true}\n'
  printf '    literals: [workers=%s, gpu_workers=%s, overlay=%s, registry=%s, cluster_size=%s,\n' \
    "$ALL" "$GPUS" "$OVERLAY" "$REGISTRY" "$(wanted_size)"
  printf '      tag=%s, tags=%s, version=%s]\n' "$TAG" "$(noted_tags)" "$(version)"
  secret_generators
}

counts() { # print the replicas of workloads without an autoscaler
  scales_itself && ((GPUS == 0)) && return
  printf 'replicas:\n'
  scales_itself || printf '  - {name: cpu-workers, count: %s}\n' "$((ALL - GPUS))"
  ((GPUS == 0)) || printf '  - {name: gpu-workers, count: %s}\n' "$GPUS"
}

wanted_size() { if scales_itself; then echo 0; else echo "$ALL"; fi; }

has_sentinels() { [[ $FEATURES == *'secretName: sentinel'* ]]; } # true if the overlay contains the component sentinel

secret_generators() { # secret names end in a digest of the content, so that pods restart when a secret changes
  local url=url replica=''
  ! has_sentinels || url=sentinel_url replica=', secrets/redis_replica_password'
  cat <<TEXT
secretGenerator:
  - {name: redis, files: [secrets/redis.acl, secrets/redis_password$replica]}
  - {name: coordinator, files: [redis_url=secrets/redis_coordinator_$url, secrets/cluster_token, secrets/secrets_key]}
  - {name: worker, files: [redis_url=secrets/redis_worker_$url]}
  - {name: redis-exporter, files: [secrets/redis_exporter.json]}
  - {name: grafana, files: [secrets/grafana_admin_password]}
TEXT
  ! has_sentinels ||
    printf '  - {name: sentinel, files: [secrets/sentinel.acl, secrets/redis_password, secrets/redis_sentinel_password]}\n'
}

# -- passwords --------------------------------------------------------------------------------------------------------

#: Entries of the Secret `passwords`, from which all other files are generated.
readonly KEPT=(redis_password redis_worker_password redis_coordinator_password redis_exporter_password
  redis_replica_password redis_sentinel_password grafana_admin_password cluster_token secrets_key)
FETCHED=' ' # names of the entries that the cluster already has

# shellcheck disable=SC2016  # Go template for kubectl
readonly FILES='{{range $name, $value := .data}}{{$name}} {{$value}}{{"\n"}}{{end}}'

fetch_passwords() { # load the cluster's passwords into $SECRETS, and generate missing ones without storing them yet
  local name value
  SECRETS=$WORK/secrets
  mkdir -m 0700 "$SECRETS"
  k get secret passwords --ignore-not-found --output "go-template=$FILES" >"$WORK/passwords" 2>"$WORK/log" ||
    unreadable "the Secret passwords"
  while read -r name value; do
    base64 -d <<<"$value" >"$SECRETS/$name"
    FETCHED+="$name "
  done <"$WORK/passwords"
  rm "$WORK/passwords"
  SECRETS_FOLDER=$SECRETS deploy/secrets.sh --token 2>/dev/null
}

keep_passwords() { # store the passwords once; a second caller uses the passwords of the first
  local name files=() missing=''
  for name in "${KEPT[@]}"; do
    files+=("--from-file=$SECRETS/$name")
    [[ $FETCHED == *" $name "* ]] || missing=yes
  done
  [[ -n $missing ]] || return 0
  if [[ $FETCHED == ' ' || -n $DRY ]]; then
    run_k create secret generic passwords "${files[@]}"
  else # an entry of the Secret was deleted
    k create secret generic passwords "${files[@]}" --dry-run=client --output yaml </dev/null |
      k apply --server-side --force-conflicts --filename - >/dev/null
  fi
}
