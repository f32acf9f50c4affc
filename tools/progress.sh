# Sourced by setup.sh: prints what a long command is doing, in a line on standard error every few
# seconds. On a terminal the line is redrawn in place.

# progress_of LOG: prints the last step that ninja, ctest, apt-get or a gate has written to LOG.
progress_of() {
  tail -c 30000 "$1" 2>/dev/null | tr '\r' '\n' | awk '
    # [12/294] Building CXX object .../lower_dot.cc.o; the gates use the same form
    match($0, /^\[[0-9]+\/[0-9]+\] /) {
      split(substr($0, 2, RLENGTH - 3), n, "/")
      name = $NF
      # Sources that are compiled together are named by their target: .../tessera_api.dir/Unity/...
      sub(/\.dir\/Unity\/.*/, "", name); sub(/.*\//, "", name); sub(/\.(o|gch)$/, "", name)
      step = n[1] " of " n[2] ", " name
    }
    #  12/103 Test  #7: jit_test .....   Passed    0.50 sec
    /^ *[0-9]+\/[0-9]+ Test +#/ { split($1, n, "/"); done = n[1] " of " n[2] ", " }
    / Test +#/ { step = done test }
    /^ *Start +[0-9]+: / { test = "now " $3; step = done test }
    # apt-get
    / newly installed, / { for (i = 2; i <= NF; ++i) if ($i == "newly") all = " of " $(i - 1) }
    /^Get:[0-9]+ / { step = "downloading " $5 }
    /^Unpacking / { step = "unpacking " ++unpacked all ", " $2 }
    /^Setting up / { step = "setting up " ++set_up all ", " $3 }
    END { print step }' 2>/dev/null
}

# clock SECONDS: 75 -> 1:15
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# show_progress NAME LOG: prints the progress until it is killed; nothing in the first two seconds.
show_progress() {
  local name=$1 log=$2 start=$SECONDS spent step line columns next=5
  columns=$(tput cols 2>/dev/null || echo 80)
  # Stop if the shell that started this has ended without killing it.
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    spent=$((SECONDS - start))
    step=$(progress_of "$log")
    line="$name: ${step:+$step, }$(clock $spent)"
    if [ -t 2 ]; then
      if [ $spent -ge 2 ]; then printf '\r\033[K%s' "${line:0:$((columns - 1))}" >&2; fi
    elif [ $spent -ge $next ]; then
      printf '%s\n' "$line" >&2
      next=$((spent + (spent < 60 ? 5 : 15)))
    fi
  done
}

# with_progress NAME LOG COMMAND...: runs the command with its output in LOG and shows its progress.
# If COMMAND is a function, it runs with -e, except in a condition, where bash ignores -e.
with_progress() {
  local name=$1 log=$2 printer rc
  shift 2
  : >"$log"
  show_progress "$name" "$log" &
  printer=$!
  local had_e=${-//[^e]/}
  set +e
  (set -e; "$@") >"$log" 2>&1
  rc=$?
  if [ -n "$had_e" ]; then set -e; fi
  kill "$printer" 2>/dev/null || true
  wait "$printer" 2>/dev/null || true
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
  return $rc
}
