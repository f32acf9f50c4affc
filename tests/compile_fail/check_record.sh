#!/usr/bin/env bash
# check_record.sh COMPILER SOURCE_DIR: checks that the record of record.cc compiles, and that it
# does not compile without any one of its fields.
set -euo pipefail
compiler=$1
source_dir=$2
record=$source_dir/tests/compile_fail/record.cc

compiles() {
  "$compiler" -std=c++20 -fsyntax-only -I"$source_dir/include" -I"$source_dir/src" -x c++ -
}

compiles <"$record" || { echo "the complete record does not compile" >&2; exit 1; }
for field in name doc source attributes types shape vjp factors pattern host reference cost \
  samples; do
  if sed "/^    \.$field = /d" "$record" | cmp -s - "$record"; then
    echo "record.cc has no line for $field" >&2
    exit 1
  fi
  if sed "/^    \.$field = /d" "$record" | compiles 2>/dev/null; then
    echo "a record without $field compiles" >&2
    exit 1
  fi
done
