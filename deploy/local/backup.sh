# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements backup and restore of a local cluster, which can be running or stopped.
# This file also works with bash 3.2.

backup_local_cluster() { # backup FILE
  local file
  file=$(backup_path "$@")
  if [[ -n $DRY ]]; then
    quoted .venv/bin/python -m deploy.local dump FOLDER
    quoted tar -czf "$file" manifest.json dump.rdb audit.jsonl
    return
  fi
  need_environment
  # shellcheck disable=SC2034  # part of the backup's manifest
  PROJECT=local
  local_python dump "$WORK" >"$WORK/log"
  write_backup "$file" "the contents of artifacts ($DATA/artifacts) or the key of secrets ($DATA/secrets_key)"
}

restore_local_cluster() { # restore FILE [--yes]
  local file='' yes='' running=''
  read_restore "$@"
  file=$(from_caller "$file")
  open_backup "$file"
  if runs_local; then running=yes; else run deploy/environment.sh local; fi
  confirm_local_restore "$yes" "$file"
  if [[ -n $DRY ]]; then
    quoted .venv/bin/python -m deploy.local restore FOLDER
    return
  fi
  local_python restore "$WORK" >"$WORK/loaded_audit"
  tell_audit_file
  tell_restored "$(in_manifest keys)"
  if [[ -n $running ]]; then say "The cluster is running: $(cat "$DATA/url")"; else say "Start the cluster: ./deploy-cluster.sh local"; fi
}

confirm_local_restore() { # confirm_local_restore YES PATH: ask only if the restore would replace data
  [[ -d $DATA/redis/appendonlydir ]] || return 0
  tell_replaced "$2" "$(local_json)"
  sure "$1" "Replace them?"
}

local_python() { # local_python ARGUMENT...: run deploy.local, which prints its own error messages
  local code=0
  .venv/bin/python -m deploy.local "$@" || code=$?
  ((code == 0)) || { end_said && exit "$code"; }
}
