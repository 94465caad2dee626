"""Is an EAGLE-3 head right and fast on this GPU? Checks and timings at the widths of Qwen2.5-VL-7B.

Needs torch and transformers 5, and neither vLLM nor speculators nor an installed mmspec. From the repository's root:

    python benchmarks/gpu_check.py [--out FILE] [--json]
    python benchmarks/gpu_check.py --only draft_step
    python benchmarks/gpu_check.py --only head --break rotary    # has to fail

Without a GPU it runs at tiny widths, which says whether the script works, and nothing of speed. Sections:

head        forward, training-time test, gradients and a draft loop of 7 steps against a float64 reference; an error
            above the stated share of the largest value is a failure
training    tokens/s of optimizer steps through 7 steps of training-time test, peak memory
draft_step  one draft step against one step of the target, 1,000 tokens in the KV cache

Prints a table a section, and with --out writes all figures as JSON with device, versions, revision and command, after
each section anew. Exits with 1 if a check failed, and says which. A further section is a function in SECTIONS.
"""

import argparse
import gc
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from gpu_check.exactness import exactness
from gpu_check.head import FAULTS
from gpu_check.report import report, table, write
from gpu_check.run import SIZES, Row, Run, Section
from gpu_check.step_cost import step_cost
from gpu_check.training import training_speed

SECTIONS: dict[str, Section] = {
    "head": exactness,
    "training": training_speed,
    "draft_step": step_cost,
}

_SIZE = {"cuda": "qwen2.5-vl-7b", "cpu": "tiny"}
_MOST_GIB = 100


def main() -> int:
    given = _arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(SIZES[given.size or _SIZE[device.type]], device, given.fault)
    _prepare(device)
    rows: dict[str, list[Row]] = {}
    result: dict[str, Any] = {}
    start = time.perf_counter()
    for name in given.only or SECTIONS:
        rows[name] = _run(name, run)
        print(table(name, rows[name]), end="\n\n", flush=True)
        result = report(rows, run, time.perf_counter() - start)
        if given.out:
            write(given.out, result)
    failures = result["result"]["failures"]
    for failure in failures:
        print(f"FAILED {failure}")
    if given.json:
        print(json.dumps(result))
    return 1 if failures else 0


def _run(name: str, run: Run) -> list[Row]:
    """A section's rows; what is wrong in one section must not cost the others' figures."""
    try:
        return SECTIONS[name](run)
    except Exception as error:
        traceback.print_exc()
        said = str(error).strip().splitlines() or [""]
        return [Row("stopped", failure=f"stopped: {type(error).__name__}: {said[0]}")]
    finally:
        gc.collect()
        if run.device.type == "cuda":
            torch.cuda.empty_cache()


def _prepare(device: torch.device) -> None:
    # TF32 would pass for float32.
    torch.set_float32_matmul_precision("highest")
    if device.type == "cuda":
        torch.cuda.set_device(0)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, _MOST_GIB * 2**30 / total))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write all figures to this file")
    parser.add_argument("--json", action="store_true", help="print them as the last line")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section; may be given again")
    parser.add_argument("--size", choices=SIZES, help="widths; those of Qwen2.5-VL-7B on a GPU, else tiny")
    parser.add_argument("--break", dest="fault", choices=FAULTS, help="break the head on purpose")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
