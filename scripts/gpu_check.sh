#!/usr/bin/env bash
# One command for a borrowed GPU: scripts/gpu_check.sh OUT_DIR
#
# (a) the GPU tests, (b) the sweep gpu_quick under a time budget, (c) a profile of SDPA, (d) one short table, last.
# Results JSONL, report HTML, PNGs and logs are left in OUT_DIR. Ends inside 6 minutes; no failure stops the rest.
# PYTHON chooses the interpreter; WHEELS names a folder of wheels for packages that it lacks (nothing is fetched).
# Without a GPU it runs the sweep `smoke` on the CPU instead and says so, which tests the script itself.
set -u
out=${1:?usage: scripts/gpu_check.sh OUT_DIR}
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
failures=""

step() { # step NAME LIMIT_S COMMAND...: runs it, keeps its output in OUT_DIR/NAME.log, goes on whatever happens
  local name=$1 limit=$2
  shift 2
  echo "== $name" >&2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  local code=$?
  [ $code -eq 0 ] || failures="$failures $name($code)"
  tail -n 3 "$out/$name.log" >&2
}

if [ -n "${WHEELS:-}" ]; then
  step wheels 60 "$python" -m pip install --quiet --no-index --find-links "$WHEELS" pydantic cyclopts filelock altair hypothesis
fi
"$python" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null && gpu=yes || gpu=no
if [ $gpu = yes ]; then
  nvidia-smi >"$out/nvidia-smi.txt" 2>&1 || true
  step tests 80 "$python" -m pytest -m gpu -q -p no:cacheprovider
  step sweep 170 "$python" -m bench run --sweep gpu_quick --device cuda --time-budget 130s -o "$out" --reports "$out/report"
  step profile 40 "$python" scripts/gpu_profile.py "$out"
else
  echo "torch sees no CUDA device: running the sweep smoke on the CPU instead" >&2
  step tests 80 "$python" -m pytest -m gpu -q -p no:cacheprovider
  step sweep 120 "$python" -m bench run --sweep smoke --device cpu -o "$out" --reports "$out/report"
  step profile 40 "$python" scripts/gpu_profile.py "$out"
fi
step rank 30 "$python" -m bench rank --results "$out" --format markdown

echo
echo "device: $([ $gpu = yes ] && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo 'no GPU, CPU stand-in')"
echo "tests: $(grep -E '(passed|failed|skipped|error)' "$out/tests.log" | tail -n 1)"
echo "steps that failed:${failures:- none}"
cat "$out/rank.log" 2>/dev/null
