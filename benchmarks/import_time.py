"""How long `import mmspec` takes, and how many of vLLM's and torch's modules it brings in.

python benchmarks/import_time.py [--out benchmarks/results/import_time.json]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mmspec.bench.provenance import write_result

_RUNS = 9
_COUNT = "import sys, mmspec; print(sum(m.split('.')[0] in ('vllm', 'torch') for m in sys.modules))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    given = parser.parse_args()
    seconds = [_run("import mmspec") - _run("pass") for _ in range(_RUNS)]
    counted = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    result = {
        "seconds_median": round(statistics.median(seconds), 4),
        "seconds_spread": [round(min(seconds), 4), round(max(seconds), 4)],
        "vllm_and_torch_modules": int(counted.stdout),
    }
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result))


def _run(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
