# shellcheck shell=bash
# Sourced by deploy-cluster.sh: the file of a backup, the same wherever the cluster runs.

readonly BACKUP_FORMAT=1

sha256() { # sha256 FILE
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

fact() { sed -n "s/^fact $1 //p" "$WORK/log"; } # fact NAME: of the dump just made

manifest() {
  printf '{"format": %s, "version": "%s", "made": "%s", "project": "%s", "redis_version": "%s", "keys": %s, "bytes": %s, "sha256": "%s", "audit_sha256": "%s"}\n' \
    "$BACKUP_FORMAT" "$(version)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$PROJECT" \
    "$(fact redis_version)" "$(fact keys)" "$(fact bytes)" "$(fact sha256)" "$([[ ! -s $WORK/audit.jsonl ]] || sha256 "$WORK/audit.jsonl")"
}

# shellcheck disable=SC2034  # file and yes are the caller's
read_restore() { # read_restore FILE [--yes]: sets the caller's file and yes
  local word
  for word in "$@"; do
    case $word in
      --yes) yes=yes ;;
      -*) wrong "restore has no option '$word'." ;;
      *) if [[ -z $file ]]; then file=$word; else wrong "restore takes one file."; fi ;;
    esac
  done
  [[ -n $file ]] || wrong "restore takes one file, made by ./deploy-cluster.sh backup."
}

open_backup() { # open_backup PATH: its parts lie in $WORK afterwards, checked
  [[ -f $1 ]] || fail 2 "there is no file $1."
  tar -C "$WORK" -xzf "$1" manifest.json dump.rdb 2>/dev/null ||
    fail 1 "$1 is no whole backup of ./deploy-cluster.sh." "Take another copy."
  [[ $(in_manifest format) == "$BACKUP_FORMAT" ]] ||
    fail 1 "$1 has format '$(in_manifest format)', and this version reads $BACKUP_FORMAT." "Use the version that made it: $(in_manifest version)"
  [[ $(head -c 5 "$WORK/dump.rdb") == REDIS && $(sha256 "$WORK/dump.rdb") == "$(in_manifest sha256)" ]] ||
    fail 1 "$1 is damaged: its checksum differs." "Take another copy."
  [[ -n $(in_manifest audit_sha256) ]] || return 0
  tar -C "$WORK" -xzf "$1" audit.jsonl 2>/dev/null && [[ $(sha256 "$WORK/audit.jsonl") == "$(in_manifest audit_sha256)" ]] ||
    fail 1 "$1 is damaged: audit.jsonl is missing or its checksum differs." "Take another copy."
}

in_manifest() { sed -nE "s/.*\"$1\": \"?([^\",}]*).*/\1/p" "$WORK/manifest.json"; }

write_backup() { # write_backup FILE: of $WORK/dump.rdb, whose facts lie in $WORK/log, and audit.jsonl; whole or not at all
  [[ $(sha256 "$WORK/dump.rdb") == "$(fact sha256)" ]] || fail 1 "the copy is not whole: its checksum differs." "Run the same command again."
  manifest >"$WORK/manifest.json"
  local part parts=(manifest.json dump.rdb)
  [[ ! -s $WORK/audit.jsonl ]] || parts+=(audit.jsonl)
  part=$(umask 077 && mktemp "$1.XXXXXX")
  if ! tar -C "$WORK" -czf "$part" "${parts[@]}" || ! tar -tzf "$part" >/dev/null; then
    rm -f "$part"
    fail 1 "the backup could not be written to $(dirname "$1")." "Is its disk full? Nothing is left there."
  fi
  mv -n "$part" "$1"
  say "Written: $1 ($(fact keys) keys, $(($(wc -c <"$1") / 1024 + 1)) KB). Put it back: ./deploy-cluster.sh restore FILE"
  say "Bytes of artifacts are not in it: docs/operations.md#backup-and-restore"
}

backup_path() { # backup_path FILE: where it will be, checked
  [[ $# -eq 1 && $1 != -* ]] || wrong "backup takes one file, such as backup.tar.gz."
  local file
  file=$(from_caller "$1")
  [[ ! -e $file ]] || fail 2 "$file is there already and is not overwritten." "Give another name, such as $1.$(date +%Y%m%d)"
  [[ -d $(dirname "$file") && -w $(dirname "$file") ]] || fail 2 "no file can be written in $(dirname "$file")."
  printf '%s\n' "$file"
}

need_one_redis() { # nothing is restored where a replica would bring the data of now back
  fail 1 "a backup is put into one Redis, and here sentinels watch over three." \
    "First: docs/high-availability.md, Back to one Redis"
}
