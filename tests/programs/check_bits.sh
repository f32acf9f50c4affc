#!/usr/bin/env bash
# check_bits.sh [--update] GOLDEN COMMAND...: trains the models of a golden file for five steps.
# Their parameters must have the recorded bits, which are those of every machine. Each line of the
# file has a hash and the arguments of `tessera train`. COMMAND may begin with an emulator.
set -euo pipefail
update=no
if [ "$1" = --update ]; then update=yes && shift; fi
golden=$1
shift
written=$(mktemp)
trap 'rm -f "$written"' EXIT

failed=0
while IFS= read -r line; do
  case $line in
    "#"* | "") echo "$line" >>"$written" && continue ;;
  esac
  read -r want arguments <<<"$line"
  read -ra words <<<"$arguments"
  hash=$("$@" train "${words[@]}" --steps 5 --progress off --json - |
    sed -nE 's/.*"params_hash": *"([0-9a-f]+)".*/\1/p')
  echo "$hash $arguments" >>"$written"
  if [ "$hash" != "$want" ]; then
    echo "other bits than recorded: $hash, not $want, from train $arguments"
    failed=1
  fi
done <"$golden"
if [ $update = yes ]; then
  cat "$written" >"$golden"
else
  exit $failed
fi
