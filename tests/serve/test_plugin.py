"""The plugin in real engines: loaded in every process, without effect where mmspec is not configured."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mmspec.patches import AT_LOAD
from tests.serve.conftest import last_json

pytestmark = [pytest.mark.engine, pytest.mark.slow]

IN_WORKER = """
import json, os, sys
from mmspec import LLM

def loaded(worker):
    import os
    from mmspec.plugin import loaded
    return os.getpid(), loaded()

if __name__ == "__main__":
    llm = LLM(sys.argv[1], dtype="float32", max_num_seqs=2, kv_cache_memory_bytes=1 << 28)
    [(pid, there)] = llm.collective_rpc(loaded)
    llm.llm_engine.engine_core.shutdown()
    # Last, since the engine logs its end to standard output.
    print(json.dumps({"here": os.getpid(), "there": pid, "loaded": there}), flush=True)
    os._exit(0)
"""


def test_an_engine_without_mmspec_is_unchanged(tiny_vlm: Path) -> None:
    command = ("-m", "tests.serve.unconfigured", str(tiny_vlm))
    # vLLM brings plugins of its own, which stay.
    others = [plugin.name for plugin in entry_points(group="vllm.general_plugins") if plugin.name != "mmspec"]
    without = last_json(*command, VLLM_PLUGINS=",".join(others), VLLM_ENABLE_V1_MULTIPROCESSING="0")
    present = last_json(*command, VLLM_ENABLE_V1_MULTIPROCESSING="0")

    before, after = without.pop("functions"), present.pop("functions")
    assert present == without
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # Those that must see the configuration; the equal rest shows that they pass through.
    assert changed == {patch.target.replace(":", ".") for patch in AT_LOAD}
    assert all("mmspec/patches/" in after[name] for name in changed)


def test_the_plugin_is_loaded_in_the_engines_own_process(tiny_vlm: Path, tmp_path: Path) -> None:
    script = tmp_path / "in_worker.py"
    script.write_text(IN_WORKER)

    # A function is sent to the worker, which takes pickles only when told to.
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    found = last_json(str(script), str(tiny_vlm), **environment)

    assert found["there"] != found["here"]
    assert found["loaded"] is True
