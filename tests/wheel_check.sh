#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment away from the repository, runs it there.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_ROOT_USER_ACTION=ignore
python=$PWD/.venv/bin/python
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT

quiet=(--quiet --disable-pip-version-check --no-input)
"$python" -m pip wheel "${quiet[@]}" --no-deps --wheel-dir "$away/wheel" .
"$python" -m venv "$away/venv"
"$away/venv/bin/python" -m pip install "${quiet[@]}" "$away"/wheel/hetsched-*.whl

sed -n '/^```python$/,/^```$/{/^```/!p}' README.md > "$away/readme.py"  # its snippets

export HETSCHED_STATE_DIR=$away/state HETSCHED_RUNTIME_DIR=$away/run XDG_CACHE_HOME=$away/cache
cd "$away"
unset HETSCHED_CONFIG PYTHONPATH
set -x
venv/bin/hetsched --version
venv/bin/hetsched run fft --batch 32x512x512 --verify
venv/bin/hetsched run fft --batch 32x512x512 --verify --config emulated-gpu
venv/bin/hetsched service install --dry-run
venv/bin/python -m hetsched.simulate machine --profile h100
venv/bin/python readme.py
