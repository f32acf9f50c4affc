#!/usr/bin/env bash
# check_programs.sh COMPILER SOURCE_DIR: checks that programs.cc compiles, and that each of its
# mistaken programs is rejected with one error that says what is written behind its name.
set -euo pipefail
compiler=$1
source_dir=$2
programs=$source_dir/tests/compile_fail/programs.cc

compile() {
  LC_ALL=C "$compiler" -std=c++20 -fsyntax-only -Werror=unused-result -Werror=unused-value \
    -I"$source_dir/include" "$@" "$programs" 2>&1
}

compile || { echo "programs.cc does not compile without its mistakes" >&2; exit 1; }
count=0
while read -r name message; do
  if out=$(compile "-D$name"); then
    echo "$name compiles" >&2
    exit 1
  fi
  if ! grep -qE "error.*($message)|note.*($message)" <<<"$out"; then
    printf '%s is rejected without "%s":\n%s\n' "$name" "$message" "$out" >&2
    exit 1
  fi
  if [ "$(grep -cE '(^|[^a-z])error: ' <<<"$out")" != 1 ]; then
    printf '%s gives more than one error:\n%s\n' "$name" "$out" >&2
    exit 1
  fi
  count=$((count + 1))
done < <(sed -n 's|^#ifdef \(PROGRAM_[a-z_]*\)  // \(.*\)|\1 \2|p' "$programs")
[ "$count" -gt 0 ] && echo "rejected $count programs"
