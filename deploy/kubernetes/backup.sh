# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements backup and restore on Kubernetes, where Redis contains all persistent data.

kubernetes_backup() { # backup FILE
  local file
  file=$(backup_path "$@")
  need_deployed
  [[ -n $PRETENDED || -n $(ready_pod redis) ]] ||
    fail 1 "Redis is not ready, so its data cannot be copied." "See: ./deploy-cluster.sh status"
  if [[ -n $DRY ]]; then
    quoted "${KUBECTL[@]}" exec --stdin redis-0 -- sh -s "< deploy/docker/dump-redis.sh"
    quoted tar -czf "$file" manifest.json dump.rdb
    return
  fi
  # shellcheck disable=SC2034  # part of the backup's manifest
  PROJECT=$NAMESPACE
  k exec --stdin redis-0 -- sh -s <deploy/docker/dump-redis.sh >"$WORK/dump.rdb" 2>"$WORK/log" || {
    redacted <"$WORK/log" >&2
    fail 1 "copying Redis failed; see the lines above." "See: ./deploy-cluster.sh logs redis"
  }
  write_backup "$file"
}

# -- restore ----------------------------------------------------------------------------------------------------------

kubernetes_restore() { # restore FILE [--yes]
  local file='' yes=''
  read_restore "$@"
  open_backup "$(from_caller "$file")"
  need_deployed
  [[ -z $(k get statefulset sentinel --ignore-not-found --output name) ]] || need_one_redis
  say "This replaces all jobs and results in namespace $NAMESPACE with those of $file" \
    "(created $(in_manifest made), $(in_manifest keys) keys)."
  sure "$yes" "Replace them?"
  deployed_tags
  as_before
  fetch_passwords
  render
  stop_workloads
  load_into_volume || undo_kube_restore
  apply
  [[ -n $DRY ]] || tell_restored "$(sed -n 's/^keys //p' "$WORK/loaded")"
}

load_into_volume() { # load the dump in a temporary pod on the volume of the stopped Redis
  if [[ -n $DRY ]]; then
    quoted "${KUBECTL[@]}" apply --filename RESTORE_POD
    quoted "${KUBECTL[@]}" exec --stdin redis-restore -- sh -s "< dump.rdb"
    return
  fi
  k delete pod redis-restore --ignore-not-found --wait >/dev/null
  restore_pod | k apply --filename - >/dev/null
  local code=0
  k wait pod redis-restore --for condition=Ready --timeout 120s >"$WORK/log" 2>&1 &&
    k exec --stdin redis-restore -- sh -c "$(<deploy/docker/load-redis.sh)" <"$WORK/dump.rdb" >"$WORK/loaded" 2>"$WORK/log" || code=$?
  k delete pod redis-restore --wait >/dev/null
  return "$code"
}

restore_pod() { # print the manifest of the temporary pod, which is hardened like the Redis pod
  cat <<TEXT
apiVersion: v1
kind: Pod
metadata: {name: redis-restore, labels: {app.kubernetes.io/name: redis-restore}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 5
  securityContext: {runAsNonRoot: true, runAsUser: 999, runAsGroup: 999, fsGroup: 999, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: redis
      image: $(k get statefulset redis --output 'jsonpath={.spec.template.spec.containers[0].image}')
      command: [sleep, "3600"]
      resources: {requests: {cpu: 100m, memory: 256Mi}, limits: {cpu: "1", memory: 2Gi}}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
      volumeMounts: [{name: data, mountPath: /data}, {name: tmp, mountPath: /tmp}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: data-redis-0}
    - name: tmp
      emptyDir: {sizeLimit: 16Mi}
TEXT
}

undo_kube_restore() { # start the cluster again with its old data, which is unchanged
  redacted <"$WORK/log" | tail -n 20 >&2
  complain "loading the backup failed; see the lines above." "The data was not changed; starting the cluster again."
  apply
  fail 1 "nothing was restored; the cluster is running with its previous data."
}
