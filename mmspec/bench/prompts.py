"""Pictures with questions for the measurements."""

import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError
from mmspec.pictures import picture_part, url_part, user_message

if TYPE_CHECKING:
    from mmspec.encoders.pocket.evaluate import Answerer


@dataclass(frozen=True)
class Prompt:
    """One question, about a picture if there is one; `name` tells it apart in results."""

    name: str
    picture: dict[str, Any] | None  # a message part
    question: str

    def messages(self) -> list[dict[str, Any]]:
        return user_message(self.question, [self.picture] if self.picture else [])


def text_prompts() -> list[Prompt]:
    """Questions without a picture."""
    questions = (
        "What is the capital of France?",
        "Write two sentences about the sea.",
        "How do I boil an egg?",
        "Name three kinds of fruit.",
        "Why is the sky blue?",
        "Give me a short poem about winter.",
        "What can I do on a rainy day?",
        "Explain what a library is.",
    )
    return [Prompt(question, None, question) for question in questions]


def example_prompts(folder: Path | None = None) -> list[Prompt]:
    """The pictures and questions of `folder`/examples.json; without a folder the project's own examples."""
    import mmspec.demo

    folder = folder or Path(str(mmspec.demo.__file__)).parent / "examples"
    path = folder / "examples.json"
    try:
        examples = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MmspecError(f"examples {path}: not found; give the folder of the example pictures") from None
    except ValueError as error:
        raise MmspecError(f"examples {path}: not JSON ({error}); restore the file") from None
    return [
        Prompt(f"{Path(image).stem}: {question}", picture_part(folder / image), question)
        for image, question in ((example["image"], example["question"]) for example in examples)
    ]


def prompt_from_image(name: str, image: Any, question: str) -> Prompt:
    """A prompt about a PIL image, handed over as PNG, which loses nothing."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return Prompt(name, url_part(file.getvalue(), "image/png"), question)


def answerer(llm: Any, **sampling: Any) -> "Answerer":
    """Answers questions about PIL images as `mmspec.encoders.pocket.evaluate` asks them.

    Args:
        llm: a `vllm.LLM`.
        **sampling: further arguments of vLLM's `SamplingParams`.
    """

    def answer(asked: list[tuple[Any, str]], max_tokens: int) -> list[str]:
        from vllm import SamplingParams

        messages = [prompt_from_image("", picture, text).messages() for picture, text in asked]
        params = SamplingParams(temperature=0, max_tokens=max_tokens, **sampling)
        return [output.outputs[0].text for output in llm.chat(messages, params, use_tqdm=False)]

    return answer


def scene_prompts(count: int) -> list[Prompt]:
    """Questions about held-out scenes of the pocket VLM's domain, descriptions and other kinds in turn."""
    from mmspec.encoders.pocket.questions import CAPTION_REQUESTS, ask
    from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, make_scene

    prompts = []
    for number in range(count):
        scene = make_scene(HELD_OUT_SEED + number)
        asked = [question.text for question in ask(scene, random.Random(scene.seed))]
        # Every other one is a description: only long answers give a drafter much to do.
        question = CAPTION_REQUESTS[0] if number % 2 == 0 else asked[number // 2 % len(asked)]
        prompts.append(_about(scene, question))
    return prompts


def caption_prompts(count: int) -> list[Prompt]:
    """Requests to describe held-out scenes of the pocket VLM's domain."""
    from mmspec.encoders.pocket.questions import CAPTION_REQUESTS
    from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, make_scene

    scenes = [make_scene(HELD_OUT_SEED + number) for number in range(count)]
    return [
        _about(scene, CAPTION_REQUESTS[number % len(CAPTION_REQUESTS)]) for number, scene in enumerate(scenes)
    ]


def question_prompts(count: int) -> list[Prompt]:
    """Short questions about held-out scenes of the pocket VLM's domain, the kinds in turn."""
    from mmspec.encoders.pocket.questions import ask
    from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, make_scene

    scenes = [make_scene(HELD_OUT_SEED + number) for number in range(count)]
    asked = [ask(scene, random.Random(scene.seed)) for scene in scenes]
    return [
        _about(scene, questions[number % len(questions)].text)
        for number, (scene, questions) in enumerate(zip(scenes, asked, strict=True))
    ]


def _about(scene: Any, question: str) -> Prompt:
    return prompt_from_image(f"scene {scene.seed}: {question}", scene.draw(), question)
