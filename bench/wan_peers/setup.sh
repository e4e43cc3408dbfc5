#!/usr/bin/env bash
# Make an environment with the peers of the benchmark across sites: torchft and hivemind beside the
# torch and the gridloom of the environment whose python is named.
#
#   bench/wan_peers/setup.sh [--into DIR] [--python PYTHON]
#
# By default .venv-peers beside .venv. Each peer is installed by itself: one that does not install
# is named on standard error, and the others go on. The exit code is the number of those that did
# not. Made again only when a version or the python changes.
set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
root=$(realpath "$here/../..")
into=$root/.venv-peers python=$root/.venv/bin/python
while (($#)); do
  (($# >= 2)) || { echo "setup: $1 needs a value" >&2; exit 64; }
  case $1 in
    --into) into=$2 ;;
    --python) python=$2 ;;
    *) echo "setup: unknown option $1" >&2; exit 64 ;;
  esac
  shift 2
done
made=$({ cat "$here/requirements.txt" "$here/setup.sh"; "$python" -c 'import sys; print(sys.prefix, sys.version)'; } | sha256sum)
[[ -f $into/made && $(cat "$into/made") == "$made" ]] && exit 0

"$python" -c 'import torch, gridloom' || { echo "setup: $python has no torch or no gridloom: run make setup" >&2; exit 64; }
rm -rf "$into"
"$python" -m venv "$into"
# Torch weighs hundreds of megabytes: it is used where it lies, gridloom too
theirs=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$into/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$theirs')" >"$own/zz-beside.pth"

failed=0
while read -r wanted; do
  [[ $wanted && $wanted != \#* ]] || continue
  if ! "$into/bin/python" -m pip install --quiet --disable-pip-version-check "$wanted" </dev/null ||
    ! "$into/bin/python" -c "import ${wanted%%==*}"; then
    echo "setup: $wanted does not install here; the benchmark goes on without it" >&2
    failed=$((failed + 1))
  fi
done <"$here/requirements.txt"
((failed)) || echo "$made" >"$into/made"
exit "$failed"
