#!/usr/bin/env bash
# One command for a borrowed GPU: scripts/gpu_check.sh OUT_DIR
#
# Runs the GPU tests, the correctness gate against broken attention, the sweep gpu_quick with its report, profiles of
# three implementations with why each is as fast as it is, and a quick part of soundness; then prints short tables: what
# became of each step, the leader board, and our kernels beside PyTorch's. Results JSONL, report HTML, PNGs, digests and
# a log per step are left in OUT_DIR.
#
# It ends inside LIMIT_S seconds (345) whatever happens: each step has a limit of its own, a step that fails is named in
# the table and stops no other, and a watchdog ends what does not end by itself. Exit code: 0, or 1 if a step failed.
#
# PYTHON chooses the interpreter. WHEELS names a folder of wheels for packages that it lacks: nothing is fetched. What
# is missing is said, with the command that fills the folder. Without a GPU a small part runs on the CPU instead.
set -u

usage="usage: scripts/gpu_check.sh OUT_DIR"
[ $# -eq 1 ] && [ -n "$1" ] || { echo "$usage" >&2; exit 2; }
mkdir -p "$1/soundness" && out=$(cd "$1" && pwd) && : >"$out/steps.tsv" ||
  { echo "OUT_DIR must be writable, got $1" >&2; exit 2; }
wheels=${WHEELS:+$(cd "$WHEELS" && pwd)} || { echo "WHEELS must be a folder, got $WHEELS" >&2; exit 2; }
python=${PYTHON:-}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac # before the folder changes
cd "$(dirname "$0")/.." || exit 2
limit=${LIMIT_S:-345}
python=${python:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
reserve=$((limit / 69))
site=$(mktemp -d) || exit 2
pids=$(mktemp -d) || exit 2 # a file per running step
export PYTHONPATH="$site:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
needed="torch numpy scipy pandas matplotlib jinja2 pydantic cyclopts rich pytest hypothesis"
kernels=tests/implementations/test_triton_flash_gpu.py

note() { printf '%s\t%s\t%s\n' "$@" >>"$out/steps.tsv"; } # NAME SECONDS OUTCOME

step() { # step NAME LIMIT_S COMMAND...: at most LIMIT_S of the 345 seconds and what is left; goes on whatever happens
  local name=$1 seconds=$(($2 * limit / 345)) left=$((limit - SECONDS - reserve)) began=$SECONDS code
  shift 2
  [ "$seconds" -ge 1 ] || seconds=1
  [ "$seconds" -le "$left" ] || seconds=$left
  [ "$seconds" -ge 1 ] || { note "$name" 0 "not run: no time was left"; return; }
  echo "== $name (at most $seconds s)" >&2
  timeout --kill-after=2 "$seconds" "$@" >"$out/$name.log" 2>&1 </dev/null & # leads a process group of its own
  echo $! >"$pids/$name"
  wait $!
  code=$?
  rm -f "$pids/$name"
  local took=$((SECONDS - began)) outcome=ok
  if [ $code -eq 124 ] || { [ $code -eq 137 ] && [ $took -ge "$seconds" ]; }; then
    outcome="ended after $seconds s: $(tail -n 1 "$out/$name.log" | cut -c1-100)"
  elif [ $code -ne 0 ]; then
    outcome="failed ($code): $(tail -n 1 "$out/$name.log" | cut -c1-100)"
  fi
  note "$name" $took "$outcome"
}

bench() { step "$1" "$2" "$python" -m bench "${@:3}"; }
tests() { step "$1" "$2" "$python" -m pytest -m gpu -q -p no:cacheprovider "${@:3}"; }
missing() { # packages that are not there; of those that are quick to import also what they lack themselves
  # shellcheck disable=SC2086 # names are words
  "$python" - $needed <<'END'
import sys
from importlib import import_module
from importlib.util import find_spec


def lacks(name):
    if find_spec(name) is None:
        return name
    try:
        name in ("torch", "scipy", "pandas", "matplotlib") or import_module(name)
    except ImportError as error:
        return (error.name or name).split(".")[0]


print(*dict.fromkeys(filter(None, map(lacks, sys.argv[1:]))))
END
}
install() { # what WHEELS holds goes into a folder of its own; then everything must be there
  if [ -n "$wheels" ]; then
    step wheels 20 "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl
  fi
  lacking=$(missing)
  [ -z "$lacking" ] && return
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  note packages 0 "missing: $lacking"
  cat >&2 <<END
$python lacks $lacking. Where there is a network, fill a folder and name it:
  python3 -m pip download --only-binary=:all: --python-version $version --platform manylinux_2_28_x86_64 \\
    --platform manylinux2014_x86_64 -d wheels $lacking
  WHEELS=wheels scripts/gpu_check.sh OUT_DIR
END
}

steps() {
  install
  if [ "$gpu" = yes ]; then
    timeout 10 nvidia-smi >"$out/nvidia-smi.txt" 2>&1
    # What computes on the CPU without timing anything goes on beside the tests, on a few cores.
    (
      export OMP_NUM_THREADS=4
      bench gate 115 verify --mutants --quick --format markdown &
      soundness soundness 60 'e08_memory|e11_mutants' &
      wait
    ) &
    ( # these mostly compile
      tests kernels-float32 75 "$kernels" -k float32 &
      tests kernels-float16 75 "$kernels" -k "float16 and not bfloat16" &
      tests kernels-bfloat16 75 "$kernels" -k bfloat16 &
      tests kernels-others 75 "$kernels" -k "not float32 and not float16" &
      wait
    )
    tests tests 40 --ignore="$kernels"
    wait # the sweep is alone
    sweep 110 gpu_quick cuda
    profiles B1-H16-T4096-d128-bfloat16-fwd-causal naive sdpa_flash triton_flash
  else
    echo "torch sees no CUDA device: a small part runs on the CPU instead" >&2
    tests tests 40 tests/bench/test_gpu.py
    bench gate 70 verify --sweep smoke -p T128-d64-float32 --device cpu -o "$out/gate" --format markdown
    soundness soundness 45 'e08_memory|e11_mutants'
    sweep 110 smoke cpu
    profiles B1-H2-T512-d64-float32-fwd-causal naive sdpa_flash
  fi
  soundness timer 30 e07_timer # last: it gets what time is left
}

soundness() { # NAME LIMIT_S EXPERIMENTS: the quick part of them
  bench "$1" "$2" soundness --quick --only "$3" --time-budget "$(($2 * limit / 690 + 1))s" \
    --notebook "$out/soundness/$1.jsonl" --format markdown
}

sweep() { # LIMIT_S SWEEP DEVICE: measured, with the report; the report alone again where the sweep was ended before it
  bench sweep "$1" run --sweep "$2" --device "$3" --time-budget "$(($1 * 3 / 4 * limit / 345))s" \
    -o "$out" --reports "$out/report"
  [ -n "$(find "$out/report" -name '*.html' 2>/dev/null)" ] ||
    bench report 15 report latest --results "$out" -o "$out/report"
  bench rank 6 rank --results "$out" --format markdown
  step ratios 6 "$python" scripts/flash_ratios.py latest "$out"
}

profiles() { # PROBLEM IMPLEMENTATION...: where time and memory go, and why each is as fast as it is
  local problem=$1 name
  shift
  for name; do
    bench "profile-$name" 30 profile -i "$name" -p "$problem" -o "$out/profiles/$name" --format markdown
  done
  bench explain 8 explain latest "$problem" --results "$out" --profiles "$out/profiles" --format markdown
  bench page 15 report latest --results "$out" -o "$out/report" --profiles "$out/profiles" # now with them
}

finish() { # the tables; all they need lies in files
  trap - TERM INT
  kill -KILL "$work" 2>/dev/null
  for file in "$pids"/*; do
    [ -s "$file" ] && note "$(basename "$file")" - "was still running" && kill -KILL -- "-$(cat "$file")" 2>/dev/null
  done
  rm -rf "$site" "$pids"
  echo
  local device='no GPU, a small part on the CPU'
  [ "$gpu" = no ] || device=$(timeout 5 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader) ||
    device="a GPU that nvidia-smi does not name, $(tail -n 1 "$out/torch.log")"
  echo "device: $device"
  for log in "$out"/tests.log "$out"/kernels-*.log; do
    [ -f "$log" ] && echo "$(basename "$log" .log): $(grep -E '(passed|failed|skipped|error)' "$log" | tail -n 1)"
  done
  [ -z "${why:-}" ] || note "$(basename "$0")" "$SECONDS" "$why"
  echo
  echo "| step | seconds | outcome |"
  echo "|---|---|---|"
  awk -F '\t' '{ gsub(/\|/, "/"); print "| " $1 " | " $2 " | " $3 " |" }' "$out/steps.tsv"
  for log in rank ratios; do [ -s "$out/$log.log" ] && echo && cat "$out/$log.log"; done
  echo
  echo "everything lies in $out"
  awk -F '\t' '$3 != "ok" { failed = 1 } END { exit failed }' "$out/steps.tsv"
  exit
}

# The first import of torch on a fresh machine may take most of a minute.
timeout 60 "$python" -c 'import torch
print("torch", torch.__version__, "CUDA", torch.version.cuda)
raise SystemExit(not torch.cuda.is_available())' >"$out/torch.log" 2>&1
code=$?
gpu=no
if [ $code -eq 0 ]; then
  gpu=yes
elif timeout 10 nvidia-smi -L >/dev/null 2>&1; then
  if [ $code -eq 124 ]; then gpu=yes; fi
  note torch "$SECONDS" "$([ $code -eq 124 ] && echo 'took 60 s to start' || echo 'sees no GPU, though one is there'): \
$(tail -n 1 "$out/torch.log" | cut -c1-100)"
fi
steps &
work=$!
trap 'why="ended from outside after $SECONDS s"; finish' TERM INT
while kill -0 "$work" 2>/dev/null; do
  [ "$SECONDS" -lt "$limit" ] || { why="out of time: ended what was still running"; break; }
  sleep 0.2
done
finish
