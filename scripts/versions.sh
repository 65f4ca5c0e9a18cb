#!/usr/bin/env bash
# Run the engine's tests, or with --all every test, under other versions of PyTorch and Python, one environment at a time:
#   scripts/versions.sh [--all] TORCH[@PYTHON]...      e.g. scripts/versions.sh 2.6.0 2.14.1 2.15.0@python3.13
# Environments are made in $TMPDIR and removed again; KEEP=1 keeps them. Prints a table's row for each. Pip decides which
# build it fetches: for one without CUDA, give pip its index (PIP_EXTRA_INDEX_URL) or a folder of wheels (PIP_FIND_LINKS).
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests/engine tests/pieces/local tests/distributed tests/pieces/guard tests/pieces/aggregation tests/pieces/weighting tests/laws/test_engines.py)
if [ "${1:-}" = --all ]; then tests=(tests); shift; fi
[ $# -gt 0 ] || { sed -n 2,5p "$0"; exit 2; }
failed=0
for wanted in "$@"; do
    torch=${wanted%@*}
    python=python3
    case $wanted in *@*) python=${wanted#*@} ;; esac
    here=${TMPDIR:-/tmp}/turnout-$torch-$(basename "$python")
    if [ ! -x "$here/bin/pytest" ]; then
        "$python" -m venv "$here"
        grep -v '^torch==' constraints.txt > "$here/constraints.txt"
        "$here/bin/pip" install --quiet "torch==$torch"
        "$here/bin/pip" install --quiet --constraint "$here/constraints.txt" --editable '.[digits,report,fetch,huggingface]' \
            pytest pytest-xdist hypothesis
    fi
    result=$(OMP_NUM_THREADS=1 PYTHONPATH=src "$here/bin/python" -m pytest "${tests[@]}" 2>&1 | tail -1) || failed=1
    about=$("$here/bin/python" -c 'import platform, torch; print(torch.__version__, "|", platform.python_version())')
    backend=$("$here/bin/python" -c 'from turnout.engine.compile.backends import usable; print(usable({"cpu"})[0].name)')
    echo "| $about | $backend | $result |"
    [ -n "${KEEP:-}" ] || rm -rf "$here"
done
exit $failed
