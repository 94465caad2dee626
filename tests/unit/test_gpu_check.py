"""`benchmarks/gpu_check.py` at tiny widths: without vLLM, speculators and an installation, and with broken heads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# A sitecustomize module: a bare machine has no more than torch and transformers, and mmspec is not installed.
BARE = """
import sys
sys.modules.update(dict.fromkeys(["vllm", "speculators", "pydantic", "rich", "typer"]))
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
"""


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_check.exactness
    import gpu_check.head

    return gpu_check


def run_bare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(BARE)
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--size", "tiny", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_runs_on_a_bare_machine(tmp_path: Path) -> None:
    out = tmp_path / "results" / "gpu_check.json"
    done = run_bare(tmp_path, "--out", str(out), "--json")

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert json.loads(done.stdout.splitlines()[-1]) == found
    assert found["provenance"]["command"][0] == "gpu_check.py"
    assert found["provenance"]["device"]["torch"] == torch.__version__
    assert {"name", "cuda", "transformers", "triton"} <= found["provenance"]["device"].keys()
    assert "revision" in found["provenance"]
    result = found["result"]
    assert result["failures"] == []
    errors = {row["what"]: row["largest_relative"] / row["tolerance"] for row in result["sections"]["head"]}
    kinds = ("forward", "training-time test", "loss", "backward", "draft loop")
    assert errors.keys() == {f"{dtype} {kind}" for dtype in ("float32", "bfloat16") for kind in kinds}
    assert all(0 < error <= 1 for error in errors.values())
    assert all(row["tokens_per_second"] > 0 for row in result["sections"]["training"])
    for row in result["sections"]["draft_step"]:
        assert row["ratio_p25"] <= row["ratio"] <= row["ratio_p75"]
    for name in result["sections"]:
        assert any(line.startswith(name) for line in done.stdout.splitlines()), "no table"


@pytest.mark.slow
def test_a_broken_head_is_named_and_fails_the_run(tmp_path: Path) -> None:
    done = run_bare(tmp_path, "--only", "head", "--break", "rotary")

    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert any("float32 forward" in line and "above 0.0005" in line for line in failed)


@pytest.mark.parametrize(
    ("fault", "dtypes"),
    [
        ("residual", ("float32", "bfloat16")),
        ("frequencies", ("float32",)),  # rounded to bfloat16, so no worse than its other errors
    ],
)
def test_other_faults_are_seen_as_well(gpu_check: Any, fault: str, dtypes: tuple[str, ...]) -> None:
    run = gpu_check.run.Run(gpu_check.run.SIZES["tiny"], torch.device("cpu"), fault)
    failed = [row.what for row in gpu_check.exactness.exactness(run) if row.failure]

    for dtype in dtypes:
        assert {f"{dtype} {what}" for what in ("training-time test", "backward", "draft loop")} <= set(failed)


def test_a_nan_fails(gpu_check: Any) -> None:
    wanted = torch.ones(3)
    pairs = [("a", torch.tensor([1.0, float("nan"), 1.0]), wanted), ("b", wanted, wanted)]

    assert gpu_check.exactness._row("forward", torch.float32, pairs).failure is not None
    assert gpu_check.exactness._row("forward", torch.float32, pairs[1:]).failure is None


@pytest.mark.parametrize("norm_before_residual", [True, False])
def test_the_plain_head_is_the_head_of_speculators(gpu_check: Any, norm_before_residual: bool) -> None:
    from mmspec.heads.train.batches import collate
    from mmspec.heads.train.unroll import unroll

    size = gpu_check.run.SIZES["tiny"]
    theirs = speculators_head(gpu_check.head.layer_config(size), size, norm_before_residual)
    ours = gpu_check.head.PlainHead(size, norm_before_residual)
    missing, unexpected = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert (missing, unexpected) == ([], ["t2d"])

    from gpu_check.samples import make_sample

    batch = collate([make_sample(size, 20, range(10, 18), range(2, 6))], True, False, torch.float32)
    for one, other in zip(unroll(ours, batch, 4), unroll(theirs, batch, 4), strict=True):
        torch.testing.assert_close(one.logits, other.logits)


def speculators_head(layer: Any, size: Any, norm_before_residual: bool) -> Any:
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    head = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=size.draft_vocabulary,
            norm_before_residual=norm_before_residual,
            eagle_aux_hidden_state_layer_ids=list(range(size.fused_layers)),
        )
    )
    for table in (head.embed_tokens, head.lm_head, head.verifier_lm_head):
        torch.nn.init.normal_(table.weight, std=0.5)
    return head
