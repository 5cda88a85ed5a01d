"""What Nsight Compute starts: ``python _ncu_target.py SUBJECT.json PREFIX`` prints its table as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.profiling._ncu_metrics import METRICS, RESULT
from bench.profiling._operators import CALL
from bench.profiling._target import prepared, read_subject


def main(arguments: list[str]) -> None:
    """Collect the metrics of one call; its kernels are taken together."""
    from importlib import import_module

    nsight: Any = import_module("nsight")  # may be absent

    call = prepared(read_subject(Path(arguments[0])))

    def body() -> None:
        with nsight.annotate(CALL):
            call()

    collect = nsight.analyze.kernel(metrics=list(METRICS), replay_mode="range", output_prefix=arguments[1], runs=1)(
        body
    )
    frame = collect().to_dataframe()
    rows = json.loads(frame[["Annotation", "Metric", "AvgValue"]].to_json(orient="records"))
    sys.stdout.write(f"{RESULT}{json.dumps(rows)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
