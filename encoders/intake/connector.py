"""vLLM's media connector with the intake: for engines that are configured for it, and vLLM's own for all others."""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import vllm.envs as envs
from PIL import Image
from vllm.exceptions import VLLMClientError, VLLMValidationError
from vllm.multimodal.media import MediaConnector, MediaIO, MediaWithBytes
from vllm.multimodal.media.connector import global_thread_pool

from mmspec.encoders.intake import notes
from mmspec.encoders.intake.data_url import is_data_url, read_data_url
from mmspec.encoders.intake.picture import take_in
from mmspec.encoders.intake.refusal import PictureRefused
from mmspec.encoders.intake.settings import NOWHERE, IntakeSettings

_MOST_REASON = 200  # characters: an address may be megabytes of base64 without its `data:`


class ServedRefusal(PictureRefused, VLLMValidationError):
    """A refusal that vLLM's server answers with 400, and that names the picture."""


class IntakeConnector(MediaConnector):
    """Takes pictures in while a conversation of a configured engine is rendered."""

    def fetch_image(self, image_url: str, **options: Any) -> Any:
        conversation = notes.current()
        if conversation is None:
            return super().fetch_image(image_url, **options)
        number, reader = conversation.next_number(), PictureReader(conversation.settings)
        with served_refusals(number):
            picture = self._read(image_url, reader)
        conversation.note(number, reader.changes)
        return picture

    async def fetch_image_async(self, image_url: str, **options: Any) -> Any:
        conversation = notes.current()
        if conversation is None:
            return await super().fetch_image_async(image_url, **options)
        number, reader = conversation.next_number(), PictureReader(conversation.settings)
        with served_refusals(number):
            picture = await self._read_async(image_url, reader)
        conversation.note(number, reader.changes)
        return picture

    def _read(self, url: str, reader: "PictureReader") -> Any:
        if is_data_url(url):
            return reader.load_bytes(read_data_url(url, reader.get_max_bytes()))
        self._require_fetching(url)
        with _address_errors():
            return self.load_from_url(url, reader, fetch_timeout=envs.VLLM_IMAGE_FETCH_TIMEOUT)

    async def _read_async(self, url: str, reader: "PictureReader") -> Any:
        if is_data_url(url):  # decoding takes long, and the event loop serves others
            return await asyncio.get_running_loop().run_in_executor(
                global_thread_pool, self._read, url, reader
            )
        self._require_fetching(url)
        with _address_errors():
            return await self.load_from_url_async(url, reader, fetch_timeout=envs.VLLM_IMAGE_FETCH_TIMEOUT)

    def _require_fetching(self, url: str) -> None:
        """vLLM's own words for this would be about a host that nobody named."""
        if NOWHERE in self.allowed_media_domains and url.lstrip()[:4].lower() == "http":
            raise PictureRefused(
                "this server fetches no addresses; send the picture as a data URL, or have its host allowed with "
                "--allowed-media-domains"
            )


class PictureReader(MediaIO[Image.Image]):
    """What vLLM's connectors give the bytes of one picture to.

    Attributes:
        changes: what was done to the picture.
    """

    def __init__(self, settings: IntakeSettings) -> None:
        super().__init__()
        self._settings = settings
        self.changes: list[str] = []

    def get_max_bytes(self) -> int:
        return self._settings.max_bytes

    def load_bytes(self, data: bytes) -> Any:
        taken = take_in(data, self._settings)
        self.changes = taken.changes
        # Part of vLLM's key of the picture: the same file gives other pixels with other settings.
        return MediaWithBytes(taken.image, data, self._settings.identity if taken.changes else None)

    def load_base64(self, media_type: str, data: str) -> Any:
        return self.load_bytes(base64.b64decode(data))

    def load_file(self, filepath: Path) -> Any:
        if (size := filepath.stat().st_size) > self._settings.max_bytes:
            raise PictureRefused(f"{size} bytes are more than {self._settings.max_bytes}; save it smaller")
        return self.load_bytes(filepath.read_bytes())


@contextmanager
def served_refusals(number: int) -> Iterator[None]:
    """Turns a refusal into one that names the picture and that vLLM's server knows how to answer."""
    try:
        yield
    except PictureRefused as refusal:
        raise ServedRefusal(f"picture {number}: {refusal}") from None


@contextmanager
def _address_errors() -> Iterator[None]:
    """vLLM answers some of what is wrong with a picture's address with 500, and some with the whole address."""
    try:
        yield
    except PictureRefused:
        raise
    except Exception as error:  # of the network, of files, of addresses, of vLLM's rules about them
        raise PictureRefused(
            f"its address cannot be read ({_reason(error)}); send the picture as a data URL"
        ) from None


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    if text is None:
        text = str(error.args[0]) if isinstance(error, VLLMClientError) and error.args else str(error)
    text = " ".join(text.split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}..."
