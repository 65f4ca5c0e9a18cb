#!/bin/sh
# Install each extra beside the pins of constraints.txt and run the tests that need it: sh scripts/extras.sh [EXTRA...]
#
# Each row is made in an environment of its own, which is removed afterwards. CI skips these tests, because the packages are
# large or belong to others. Prints a table with what failed or was skipped, and fails where a row does: where the packages
# cannot be installed, a test fails, or none passes.
set -u

cd "$(dirname "$0")/.."
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
table="$here/table"
python=${PYTHON:-python3}

# row NAME INSTALLED UNPINNED TESTS...: install, run the tests, and note what came of it. Pins of the packages in UNPINNED
# (a pattern, or -) are left out, where a package of somebody else allows no such version.
row() {
    name=$1 installed=$2 unpinned=$3
    shift 3
    case " $wanted " in *" $name "* | "  ") ;; *) return ;; esac
    grep -vE "^($unpinned)==" constraints.txt > "$here/constraints.txt"
    rm -rf "$here/venv"
    "$python" -m venv "$here/venv"
    # shellcheck disable=SC2086 - several requirements
    if ! "$here/venv/bin/pip" install --quiet -c "$here/constraints.txt" pytest pytest-xdist hypothesis $installed \
        > "$here/log" 2>&1; then
        note "cannot be installed" "" "ERROR|conflict|requested|depends on"
        failed=1
        return
    fi
    PATH="$here/venv/bin:$PATH" "$here/venv/bin/python" -m pytest -n0 -rfEs -o faulthandler_timeout=600 "$@" > "$here/log" 2>&1
    status=$?
    last=$(grep -E '[0-9]+ (passed|failed|errors?|skipped|deselected).* in [0-9.]+s' "$here/log" | tail -n 1)
    case "$last" in *" passed"*) ;; *) status=1 ;; esac
    [ $status -eq 0 ] || failed=1
    note "$([ $status -eq 0 ] && echo passed || echo failed)" "$last" "^(FAILED|ERROR|SKIPPED|E  )"
}

# note RESULT SUMMARY PATTERN: add a row to the table, and below it the lines of the log that match.
note() {
    printf '%-14s %-20s %s\n' "$name" "$1" "$2" >> "$table"
    grep -E "$3" "$here/log" | sed 's/^/               /' >> "$table"
}

wanted="$*" failed=0
here_turnout() { printf -- "-e .[%s]" "$1"; }
row tensorboard "$(here_turnout digits,tensorboard)" - tests/trackers -k tensorboard
row wandb "$(here_turnout digits,wandb)" - tests/trackers -k wandb
row mlflow "$(here_turnout digits,mlflow)" - tests/trackers -k mlflow
row trackio "$(here_turnout digits,trackio)" - tests/trackers -k trackio
row onnx "$(here_turnout digits,onnx)" - tests/export/test_model_files.py
row executorch "$(here_turnout digits,executorch)" 'numpy|packaging|flatbuffers|sympy|mpmath|networkx|scikit-learn|hydra-core|omegaconf' tests/export/test_training_files.py
row transformers "$(here_turnout digits,transformers) bitsandbytes" - tests/models/test_huggingface.py tests/models/test_finetune.py tests/models/test_quantized.py
row huggingface "$(here_turnout digits,huggingface) pillow" - tests/data/test_huggingface.py tests/data/test_tokens.py tests/data/test_table.py
row flower "$(here_turnout digits,huggingface,privacy) -e packages/turnout-serve -e packages/turnout-flower flwr-datasets" \
    'datasets|pandas|pyarrow|fsspec|dill|multiprocess|huggingface_hub|pillow|numpy|tqdm|certifi|cryptography|packaging|rich|starlette|typer|uvicorn' \
    tests/data/test_federations.py packages/turnout-flower/tests -k flower
row schemathesis "$(here_turnout digits) -e packages/turnout-serve schemathesis" - packages/turnout-serve/tests/test_schemathesis.py
row pfl "$(here_turnout digits) pfl" 'dp-accounting|absl-py|attrs|dm-tree|mpmath|numpy|packaging|scipy' tests/data/test_federations.py -k pfl
row clusters "$(here_turnout digits,report,slurm,dask,ray)" - tests/comparison/test_sharing.py -k clusters
cat "$table"
exit $failed
