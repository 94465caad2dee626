"""The intake through the Python API, as JSON: `python -m tests.serve.intake_in_python MODEL PLACEHOLDER`."""

import base64
import io
import json
import os
import sys
from typing import Any

import numpy as np
from PIL import Image

from tests.odd_pictures import SETTINGS, card, odd_pictures, saved
from tests.serve.doors import through_both

BREAK = "\u200b"


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def conversation(*pictures: Any, text: str = "abcd abcd") -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for picture in pictures:
        if isinstance(picture, Image.Image):
            parts.append({"type": "image_pil", "image_pil": picture})
        else:
            parts.append({"type": "image_url", "image_url": {"url": data_url(picture)}})
    return [{"role": "user", "content": parts}]


def intake(model: str, placeholder: str) -> dict[str, Any]:
    """Two engines in this process: one of `mmspec.LLM`, then one of vLLM's own."""
    import vllm
    from vllm import SamplingParams

    from mmspec import LLM, IntakeConfig, MmspecError

    files = {odd.name: odd.data for odd in odd_pictures()}
    plain, grey, turned = (
        saved(Image.fromarray(card()), "PNG"),
        files["16-bit grey png"],
        files["png, orientation 6"],
    )
    sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=3)
    engine: dict[str, Any] = {"dtype": "float32", "max_num_seqs": 4, "kv_cache_memory_bytes": 1 << 28}
    engine |= {"limit_mm_per_prompt": {"image": 2}}

    def described(output: Any) -> dict[str, Any]:
        likely = [[round(top.logprob, 5) for top in step.values()] for step in output.outputs[0].logprobs]
        stats = getattr(output, "mmspec", None)
        return {"prompt": len(output.prompt_token_ids), "likely": likely, "notes": stats and stats.intake}

    def refusal(ask: Any) -> str | None:
        try:
            ask()
        except MmspecError as error:
            return str(error)
        return None

    llm = LLM(
        model, intake=IntakeConfig(max_bytes=SETTINGS.max_bytes, max_pixels=SETTINGS.max_pixels), **engine
    )
    found: dict[str, Any] = {}
    batch = [conversation(plain), conversation(plain, grey), conversation(turned), conversation(text="abcd")]
    found["chat"] = [described(output) for output in llm.chat(batch, sampling, use_tqdm=False)]
    right = Image.fromarray(np.ascontiguousarray(np.rot90(card(), -1)))
    found["right"] = described(llm.chat(conversation(right), sampling, use_tqdm=False)[0])
    in_memory = conversation(Image.open(io.BytesIO(turned)))
    found["in memory"] = described(llm.chat(in_memory, sampling, use_tqdm=False)[0])
    found["streamed"] = list(llm.stream_chat(conversation(grey), sampling))[-1].mmspec.intake
    llm.enqueue_chat([conversation(plain), conversation(turned)], sampling, use_tqdm=False)
    found["enqueued"] = [output.mmspec.intake for output in llm.wait_for_completion(use_tqdm=False)]
    prompts = [
        {"prompt": f"{placeholder} abcd", "multi_modal_data": {"image": Image.open(io.BytesIO(data))}}
        for data in (turned, plain)
    ]
    found["generated"] = [output.mmspec.intake for output in llm.generate(prompts, sampling, use_tqdm=False)]
    found["refused"] = refusal(lambda: llm.chat(conversation(plain, b"text"), sampling, use_tqdm=False))
    found["refused stream"] = refusal(lambda: list(llm.stream_chat(conversation(b""), sampling)))
    broken = Image.open(io.BytesIO(files["half a jpeg"]))
    found["refused in memory"] = refusal(lambda: llm.chat(conversation(broken), sampling, use_tqdm=False))
    found["after"] = described(llm.chat(conversation(plain), sampling, use_tqdm=False)[0])
    token = placeholder.split("><")[1 if "><" in placeholder else 0].strip("<>")
    texts = {"typed": f"a <{token}> here", "as text": f"a <{BREAK}{token}> here"}
    for name, text in texts.items():
        found[name] = described(llm.chat(conversation(plain, text=text), sampling, use_tqdm=False)[0])
    found["doors"] = through_both(llm)
    llm.close()

    stock = vllm.LLM(model, enforce_eager=True, **engine)
    url = data_url(plain).replace(";base64", "")  # what the intake takes, and vLLM does not
    asked = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    try:
        stock.chat(asked, sampling, use_tqdm=False)
        found["stock"] = None
    except Exception as error:
        found["stock"] = type(error).__name__
    for name, text in texts.items():
        found[f"stock {name}"] = described(
            stock.chat(conversation(plain, text=text), sampling, use_tqdm=False)[0]
        )
    return found


if __name__ == "__main__":
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(intake(*sys.argv[1:])), file=results, flush=True)
    os._exit(0)
