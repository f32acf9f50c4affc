#!/usr/bin/env bash
# run_cases.sh PLUGIN PYTHON: runs the cases on the plugin, with the JAX of PYTHON, which
# `./check --all` installs. Exits with 77 if there is none.
set -euo pipefail
plugin=$1 python=$2
if [ ! -x "$python" ] || ! "$python" -c 'import jax' 2> /dev/null; then
  echo "skipped: $python has no jax; ./check --all installs it if there is a network"
  exit 77
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here/../../plugin/python TESSERA_PJRT_LIBRARY=$plugin
export JAX_PLATFORMS=tessera,cpu TESSERA_NUM_DEVICES=8
"$python" -B "$here/cases.py"
"$python" -B "$here/body_cases.py"
"$python" -B "$here/linalg_cases.py"
"$python" -B "$here/pattern_cases.py"
"$python" -B "$here/complex_cases.py"
"$python" -B "$here/callback_cases.py"
"$python" -B "$here/dtype_cases.py"
exec "$python" -B "$here/random_programs.py" --cases 30
