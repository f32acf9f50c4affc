#!/usr/bin/env bash
# run_on_cpu.sh WRITER PYTHON KIND [SEED [COUNT]]: writes programs in StableHLO and runs them with
# the jaxlib of PYTHON, which `./check --all` installs. Exits with 77 if there is none.
set -euo pipefail
writer=$1 python=$2
shift 2
if [ ! -x "$python" ] || ! "$python" -c 'import jaxlib' 2> /dev/null; then
  echo "skipped: $python has no jaxlib; ./check --all installs it if there is a network"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$writer" "$folder" "$@"
"$python" "$(dirname "$0")/run_cases.py" "$folder"
