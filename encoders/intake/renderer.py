"""vLLM's renderer for Hugging Face models with the intake, for engines that are configured for it."""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from PIL import Image
from vllm.renderers.hf import HfRenderer

from mmspec.encoders.intake import notes
from mmspec.encoders.intake.connector import served_refusals
from mmspec.encoders.intake.notes import Conversation
from mmspec.encoders.intake.picture import take_in_image
from mmspec.encoders.intake.placeholders import keep_as_text, placeholder_texts
from mmspec.encoders.intake.settings import engine_settings

_FETCHED = (None, "image_url", "input_image")  # types of parts whose `image_url` vLLM fetches


class IntakeRenderer(HfRenderer):
    """Opens a conversation for the connector, takes in pictures that need no connector, and keeps text text.

    Without the engine's `additional_config["mmspec"]["intake"]` every call goes straight through.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self._settings = engine_settings(config.additional_config)

    def render_messages(self, messages: list[Any], params: Any) -> Any:
        if self._settings is None:
            return super().render_messages(messages, params)
        with notes.conversation(self._settings) as opened:
            return super().render_messages(self._prepared(messages, opened), params)

    async def render_messages_async(self, messages: list[Any], params: Any) -> Any:
        if self._settings is None:
            return await super().render_messages_async(messages, params)
        with notes.conversation(self._settings) as opened:
            return await super().render_messages_async(self._prepared(messages, opened), params)

    def render_prompt(self, prompt: Any) -> Any:
        return super().render_prompt(self._with_pictures_taken_in(prompt))

    async def render_prompts_async(self, prompts: Sequence[Any]) -> Any:
        if self._settings is None or not any(_pictures_of(prompt) for prompt in prompts):
            return await super().render_prompts_async(prompts)
        taken = [await asyncio.to_thread(self._with_pictures_taken_in, prompt) for prompt in prompts]
        return await super().render_prompts_async(taken)

    @cached_property
    def _placeholders(self) -> list[str]:
        return placeholder_texts(self.model_config.hf_config, self.get_tokenizer())

    def _prepared(self, messages: list[Any], opened: Conversation) -> list[Any]:
        """The messages with their text kept, pictures in memory taken in, and the others counted."""
        typed: list[str] = []
        messages = keep_as_text(messages, self._placeholders, typed)
        for text in typed:
            opened.remark(f"text: {text} was typed, and stays text")
        number = 0
        for message in messages:
            for part in _dict_parts(message):
                if part.get("type") in _FETCHED and part.get("image_url"):
                    number += 1
                    opened.expected.append(number)
                elif isinstance(part.get("image_pil"), Image.Image):
                    number += 1
                    part["image_pil"] = _take_in(part["image_pil"], number, opened)
        return messages

    def _with_pictures_taken_in(self, prompt: Any) -> Any:
        """A prompt for `generate` with its pictures taken in; arrays and features stay what they are."""
        if self._settings is None:
            return prompt
        with notes.conversation(self._settings) as opened:
            pictures = _pictures_of(prompt)
            if not pictures:
                return prompt
            taken = [_take_in(picture, number, opened) for number, picture in enumerate(pictures, 1)]
            return {**prompt, "multi_modal_data": {**prompt["multi_modal_data"], "image": taken}}


def _take_in(picture: Any, number: int, opened: Conversation) -> Any:
    if not isinstance(picture, Image.Image):
        return picture
    with served_refusals(number):
        taken = take_in_image(picture, opened.settings)
    opened.note(number, taken.changes)
    return taken.image


def _pictures_of(prompt: Any) -> list[Any]:
    """The pictures of a prompt, if any of them is one in memory."""
    data = prompt.get("multi_modal_data") if isinstance(prompt, dict) else None
    pictures = data.get("image") if isinstance(data, dict) else None
    listed = pictures if isinstance(pictures, list | tuple) else [pictures]
    return list(listed) if any(isinstance(picture, Image.Image) for picture in listed) else []


def _dict_parts(message: Any) -> list[dict[str, Any]]:
    content = message.get("content") if isinstance(message, dict) else None
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
