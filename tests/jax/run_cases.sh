#!/usr/bin/env bash
# run_cases.sh PLUGIN PYTHON NAME...: runs the programs NAME.py on the plugin, with the JAX of
# PYTHON, which `./check --all` installs. Exits with 77 if JAX is not there.
set -euo pipefail
plugin=$1 python=$2
if [ ! -x "$python" ] || ! "$python" -c 'import jax' 2> /dev/null; then
  echo "skipped: $python has no jax; ./check --all installs it if there is a network"
  exit 77
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here/../../plugin/python TESSERA_PJRT_LIBRARY=$plugin
export JAX_PLATFORMS=tessera,cpu TESSERA_NUM_DEVICES=8
# XLA compiles each program for one run, so optimizing would only take time.
export XLA_FLAGS=${XLA_FLAGS:---xla_backend_optimization_level=0}
for name in "${@:3}"; do "$python" -B "$here/$name.py"; done
