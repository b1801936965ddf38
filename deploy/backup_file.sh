# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Reads and writes backup files. All kinds of clusters use the same format.

readonly BACKUP_FORMAT=1

sha256() { # sha256 FILE
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

fact() { sed -n "s/^fact $1 //p" "$WORK/log"; } # fact NAME: print a fact about the new dump

manifest() {
  printf '{"format": %s, "version": "%s", "made": "%s", "project": "%s", "redis_version": "%s", "keys": %s, "bytes": %s, "sha256": "%s", "audit_sha256": "%s"}\n' \
    "$BACKUP_FORMAT" "$(version)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$PROJECT" \
    "$(fact redis_version)" "$(fact keys)" "$(fact bytes)" "$(fact sha256)" "$([[ ! -s $WORK/audit.jsonl ]] || sha256 "$WORK/audit.jsonl")"
}

# shellcheck disable=SC2034  # `file` and `yes` are variables of the caller
read_restore() { # read_restore FILE [--yes]: sets the caller's variables `file` and `yes`
  local word
  for word in "$@"; do
    case $word in
      --yes) yes=yes ;;
      -*) wrong "restore has no option '$word'." ;;
      *) if [[ -z $file ]]; then file=$word; else wrong "restore accepts only one file."; fi ;;
    esac
  done
  [[ -n $file ]] || wrong "restore needs a file from ./deploy-cluster.sh backup."
}

open_backup() { # open_backup PATH: extract the parts into $WORK and check them
  [[ -f $1 ]] || fail 2 "file $1 does not exist."
  tar -C "$WORK" -xzf "$1" manifest.json dump.rdb 2>/dev/null ||
    fail 1 "$1 is not a complete backup of ./deploy-cluster.sh." "Use another copy."
  [[ $(in_manifest format) == "$BACKUP_FORMAT" ]] ||
    fail 1 "$1 has format '$(in_manifest format)', but this version reads only format $BACKUP_FORMAT." "Use the version that created it: $(in_manifest version)"
  [[ $(head -c 5 "$WORK/dump.rdb") == REDIS && $(sha256 "$WORK/dump.rdb") == "$(in_manifest sha256)" ]] ||
    fail 1 "$1 is damaged: its checksum differs." "Use another copy."
  [[ -n $(in_manifest audit_sha256) ]] || return 0
  tar -C "$WORK" -xzf "$1" audit.jsonl 2>/dev/null && [[ $(sha256 "$WORK/audit.jsonl") == "$(in_manifest audit_sha256)" ]] ||
    fail 1 "$1 is damaged: audit.jsonl is missing or its checksum differs." "Use another copy."
}

in_manifest() { sed -nE "s/.*\"$1\": \"?([^\",}]*).*/\1/p" "$WORK/manifest.json"; }

write_backup() { # write_backup FILE [MISSING]: write the backup from $WORK/dump.rdb, its facts in $WORK/log, and audit.jsonl
  [[ $(sha256 "$WORK/dump.rdb") == "$(fact sha256)" ]] || fail 1 "the copy is incomplete: its checksum differs." "Run the same command again."
  manifest >"$WORK/manifest.json"
  local part parts=(manifest.json dump.rdb)
  [[ ! -s $WORK/audit.jsonl ]] || parts+=(audit.jsonl)
  part=$(umask 077 && mktemp "$1.XXXXXX")
  if ! tar -C "$WORK" -czf "$part" "${parts[@]}" || ! tar -tzf "$part" >/dev/null; then
    rm -f "$part"
    fail 1 "cannot write the backup to $(dirname "$1")." "Check whether its disk is full. No partial file remains."
  fi
  mv -n "$part" "$1"
  say "Written: $1 ($(fact keys) keys, $(($(wc -c <"$1") / 1024 + 1)) KB). Restore it: ./deploy-cluster.sh restore FILE"
  say "The backup does not contain ${2:-the contents of artifacts}: docs/operations.md#backup-and-restore"
}

backup_path() { # backup_path FILE: check and print the path of a new backup
  [[ $# -eq 1 && $1 != -* ]] || wrong "backup needs one file name, such as backup.tar.gz."
  local file
  file=$(from_caller "$1")
  [[ ! -e $file ]] || fail 2 "$file already exists and is not overwritten." "Use another name, such as $1.$(date +%Y%m%d)"
  [[ -d $(dirname "$file") && -w $(dirname "$file") ]] || fail 2 "cannot write to the folder $(dirname "$file")."
  printf '%s\n' "$file"
}

tell_replaced() { # tell_replaced PATH STATUS: print what a restore would replace; STATUS is JSON with the number of jobs
  local jobs unfinished
  jobs=$(tr -d ' \n' <<<"$2" | grep -oE '"jobs":\{[^}]*\}') || true
  unfinished=$(grep -oE '"(queued|running|finishing|cancelling)":[1-9][0-9]*' <<<"$jobs" | tr -d '"' | paste -sd , - | sed 's/,/, /g') || true
  say "This replaces all jobs and results with those of $1 (created $(in_manifest made), $(in_manifest keys) keys)."
  [[ -z $unfinished ]] || say "Unfinished jobs would be lost: $unfinished"
}

tell_restored() { # tell_restored KEYS
  say "Restored $1 keys."
  say "Tokens that were revoked after the backup are valid again; check them with cluster token list."
}

tell_audit_file() { # print what happened to the audit log's file, as audit_file.py wrote it to $WORK/loaded_audit
  local state name
  read -r state name <"$WORK/loaded_audit" || true
  case $state in
    put) say "The audit log's file was restored." ;;
    kept) say "The audit log's file was kept: a rollback entry will mark the entries that this backup does not contain." ;;
    aside) note "The existing file belonged to another audit log: it was renamed to $name and replaced by the backup's file." ;;
  esac
}

need_one_redis() { # refuse a restore under Sentinel, because a replica would bring the current data back
  fail 1 "a backup can be restored only to a single Redis, but this cluster uses Sentinel." \
    "First follow docs/high-availability.md, Back to one Redis"
}
