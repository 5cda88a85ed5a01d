#!/usr/bin/env bash
# The whole CI of this package; attention-bench and the package are installed. Exit code 0: the kernel is right, and its
# numbers are in OUT. Any other code says what failed: 1 a wrong result, 3 a regression, 5 nothing was measured.
set -euo pipefail
out=${1:-build/attention-bench} # results, and benchmarks.json for the history

# Right, on every problem that it takes? A wrong result ends the script here, before anything has a speed.
attention-bench verify --sweep smoke -i '^own_kernel$' -o "$out/verified"

# How fast, how large, how wrong, beside what people would use otherwise; the rounds are interleaved.
attention-bench measure --sweep smoke -i '^own_kernel$' -i '^naive$' -i '^sdpa_flash$' -o "$out/runs"
attention-bench rank --results "$out/runs" --format markdown

# The numbers for a history: github-action-benchmark here, `attention-bench list exports` names the others.
attention-bench export --results "$out/runs" -i '^own_kernel$' --to github-action-benchmark -o "$out/benchmarks.json" --force
