#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checks that need a real GPU, in one command: see README.md beside this file.
#
#   tests/gpu/run.sh [--out DIR] [--seconds N] [--dry-run] [--only STAGE]... [--torch-python PATH]
#                    [--python PATH] [--wheels DIR] [--libraries DIR]
#
# Exit status: 0 all passed, 1 something failed, 2 usage, 3 parts could not run here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=gpu-report
seconds=450
python=${HOTSTAGE_PYTHON:-}
wheels=
libraries=${HOTSTAGE_LIBRARY_PATH:-}
passed_on=()

usage() {
	sed -n 's/^#   //p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) passed_on+=("$1"); shift; continue ;;
	--out | --seconds | --python | --wheels | --libraries | --only | --torch-python) [ $# -ge 2 ] || usage ;;
	*) usage ;;
	esac
	case $1 in
	--out) out=$2 ;;
	--seconds) seconds=$2 ;;
	--python) python=$2 ;;
	--wheels) wheels=$2 ;;
	--libraries) libraries=$2 ;;
	*) passed_on+=("$1" "$2") ;;
	esac
	shift 2
done

if [ -z "$python" ]; then
	python=$root/.venv/bin/python
	[ -x "$python" ] || python=python3
fi
mkdir -p "$out"
scratch=$(mktemp -d -t hotstage-gpu-XXXXXX)
mounted=

# shellcheck disable=SC2317,SC2329  # the trap calls it
clean_up() {
	if [ -n "$mounted" ]; then umount "$mounted" || true; fi
	rm -rf "$scratch"
}
trap clean_up EXIT

# The XID watch reads tracepoints; where nobody has mounted tracefs, it is mounted for this run.
if [ "$(id -u)" = 0 ] && [ -d /sys/kernel/tracing ] && [ ! -d /sys/kernel/tracing/events ]; then
	if mount -t tracefs tracefs /sys/kernel/tracing; then
		mounted=/sys/kernel/tracing
		echo "mounted tracefs on $mounted for this run" >&2
	fi
fi

export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$here:$root/agent:$scratch/site
mkdir "$scratch/site"
if [ -n "$wheels" ]; then
	"$python" "$here/gpu_checks/unpack_wheels.py" "$wheels" "$scratch/site"
fi
if [ ! -e "$root/agent/hotstage/probes/objects/hotstage.bpf.o" ]; then
	echo "the BPF objects are not built: run \`make bpf\` (needs clang) in the checkout" >&2
	exit 1
fi
if [ -n "$libraries" ]; then
	passed_on+=(--libraries "$(cd "$libraries" && pwd)")
fi

# Everything that is started ends with its stage; the outer limit is for the day when that fails.
status=0
timeout --kill-after=15 "$((${seconds%.*} + 20))" \
	"$python" -m gpu_checks --out "$out" --seconds "$seconds" "${passed_on[@]}" || status=$?
exit "$status"
