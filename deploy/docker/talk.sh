# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Prints messages and runs commands, with messages on stderr and data on stdout.
# This file also works with bash 3.2.

DRY=''
WORK='' # temporary folder of this run, accessible only to this user

paint() { # paint NUMBER TEXT: print text in color on a terminal
  if [[ -t 2 && -z ${NO_COLOR:-} ]]; then printf '\033[%sm%s\033[0m' "$1" "$2"; else printf '%s' "$2"; fi
}

say() { named "$*" >&2; }

counted() { # counted NUMBER THING: print `1 CPU worker` or `2 CPU workers`
  printf '%s %s' "$1" "$2"
  (($1 == 1)) || printf s
}

note() { say "$(paint 33 note:) $*"; }

complain() { # complain WHAT [LINE...]: print an error and advice
  say "$(paint 31 error:) $1"
  shift
  local line
  for line in "$@"; do say "  $line"; done
}

end_said() { # suppress the message of the ERR trap, because the reason for the exit was printed
  trap - ERR
  [[ -z $WORK ]] || : >"$WORK/said"
}

fail() { # fail CODE WHAT [LINE...]
  local code=$1
  shift
  end_said
  complain "$@"
  exit "$code"
}

wrong() { # wrong WHAT: exit with a usage error
  end_said
  complain "$*"
  say "See: ./deploy-cluster.sh help"
  exit 2
}

number() { # number WHAT VALUE LOW HIGH
  if ! [[ $2 =~ ^(0|[1-9][0-9]{0,4})$ ]] || (($2 < $3 || $2 > $4)); then
    wrong "$1 needs a number from $3 to $4; got '$2'."
  fi
}

quoted() { # quoted COMMAND...: print a command with shell quoting
  local word line='' plain='^[A-Za-z0-9_@%+=:,./-]+$'
  for word in "$@"; do
    [[ $word =~ $plain ]] || word="'${word//\'/\'\\\'\'}'"
    line="$line $word"
  done
  printf '%s\n' "${line# }"
}

run() { # run COMMAND...: run a command, or print it with --dry-run
  if [[ -n $DRY ]]; then quoted "$@"; else "$@"; fi
}

run_last() { # run_last COMMAND...: replace this script by a command
  if [[ -n $DRY ]]; then
    quoted "$@"
    return
  fi
  [[ -z $WORK ]] || rm -rf "$WORK"
  exec "$@"
}

sure() { # sure YES QUESTION: ask for confirmation unless YES is set; exit code 2 without a terminal
  [[ -z $1 && -z $DRY ]] || return 0
  [[ -t 0 ]] || fail 2 "this command needs a confirmation, but stdin is not a terminal." "Use --yes to confirm."
  local answer
  read -r -p "$2 [y/N] " answer || true
  [[ $answer == [yY] || $answer == [yY][eE][sS] ]] || fail 1 "not confirmed; nothing was changed."
}
