#!/usr/bin/env bash
# One command for a borrowed GPU: scripts/gpu_check.sh OUT_DIR
#
# (a) the GPU tests, those of our Triton kernels by dtype side by side, as they mostly compile, (b) the sweep gpu_quick
# under a time budget, (c) a profile of SDPA and of our kernels, (d) two short tables, last: the leader board, and our
# kernels, forward and backward, beside sdpa_flash and sdpa_cudnn.
# Results JSONL, report HTML, PNGs and logs are left in OUT_DIR. Ends inside 6 minutes; no failure stops the rest.
# PYTHON chooses the interpreter; WHEELS names a folder of wheels for packages that it lacks (nothing is fetched).
# Without a GPU it runs the sweep `smoke` on the CPU instead and says so, which tests the script itself.
set -u
out=${1:?usage: scripts/gpu_check.sh OUT_DIR}
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
rm -f "$out/failures.txt"
kernels=tests/implementations/test_triton_flash_gpu.py

step() { # step NAME LIMIT_S COMMAND...: runs it, keeps its output in OUT_DIR/NAME.log, goes on whatever happens
  local name=$1 limit=$2
  shift 2
  echo "== $name" >&2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  local code=$?
  [ $code -eq 0 ] || echo "$name($code)" >>"$out/failures.txt"
  tail -n 3 "$out/$name.log" >&2
}

if [ -n "${WHEELS:-}" ]; then
  step wheels 20 "$python" -m pip install --quiet --no-index --find-links "$WHEELS" pydantic cyclopts filelock altair hypothesis
fi
"$python" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null && gpu=yes || gpu=no
if [ $gpu = yes ]; then
  nvidia-smi >"$out/nvidia-smi.txt" 2>&1 || true
  only() { step "kernels-$1" 90 "$python" -m pytest -m gpu -q -p no:cacheprovider "$kernels" -k "$2"; }
  only float32 float32 &
  only float16 "float16 and not bfloat16" &
  only bfloat16 bfloat16 &
  only others "not float32 and not float16" &
  wait
  step tests 50 "$python" -m pytest -m gpu -q -p no:cacheprovider --ignore="$kernels"
  step sweep 140 "$python" -m bench run --sweep gpu_quick --device cuda --time-budget 110s -o "$out" --reports "$out/report"
else
  echo "torch sees no CUDA device: running the sweep smoke on the CPU instead" >&2
  step tests 80 "$python" -m pytest -m gpu -q -p no:cacheprovider
  step sweep 120 "$python" -m bench run --sweep smoke --device cpu -o "$out" --reports "$out/report"
fi
step profile 30 "$python" scripts/gpu_profile.py "$out"
step rank 10 "$python" -m bench rank --results "$out" --format markdown
step ratios 10 "$python" scripts/flash_ratios.py latest "$out"

echo
echo "device: $([ $gpu = yes ] && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || echo 'no GPU, CPU stand-in')"
for log in "$out"/tests.log "$out"/kernels-*.log; do
  [ -f "$log" ] && echo "$(basename "$log" .log): $(grep -E '(passed|failed|skipped|error)' "$log" | tail -n 1)"
done
echo "steps that failed: $(cat "$out/failures.txt" 2>/dev/null | tr '\n' ' ' | grep . || echo none)"
cat "$out/rank.log" "$out/ratios.log" 2>/dev/null
