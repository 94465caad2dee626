"""From a file's bytes, or a picture in memory, to what a processor takes."""

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from mmspec.encoders.intake.colours import to_eight_bits, to_opaque, to_rgb
from mmspec.encoders.intake.formats import COMMON, describe, readable
from mmspec.encoders.intake.refusal import PictureRefused
from mmspec.encoders.intake.settings import DEFAULTS, IntakeSettings
from mmspec.encoders.intake.shape import to_fitting_shape

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_ORIENTATIONS = {
    2: "mirrored",
    3: "turned by 180°",
    4: "flipped",
    5: "mirrored and turned by 90°",
    6: "turned by 90° clockwise",
    7: "mirrored and turned by 90°",
    8: "turned by 90° anticlockwise",
}


@dataclass(frozen=True)
class TakenPicture:
    """A picture as the processor gets it.

    Attributes:
        image: an RGB picture.
        changes: what was done to it, as short clauses without a subject; empty when it is as it was sent.
        media_type: of the file, told by its content.
    """

    image: Image.Image
    changes: list[str] = field(default_factory=list)
    media_type: str = "application/octet-stream"


def take_in(data: bytes, settings: IntakeSettings = DEFAULTS) -> TakenPicture:
    """Decodes a file and brings the picture into a form that every processor takes.

    Raises:
        PictureRefused: it is too large, or not a whole picture.
    """
    if not data:
        raise PictureRefused("the file is empty; give the file of a picture")
    if len(data) > settings.max_bytes:
        raise PictureRefused(f"{len(data)} bytes are more than {settings.max_bytes}; save it smaller")
    changes: list[str] = []
    try:
        image = _open(data, settings)
        _require_few_pixels(image, settings)
        _note_frames(image, changes)
        upright = _decode_upright(image, changes)
        settled = _settle(upright, settings, changes)
    except PictureRefused:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(settings) from None
    except Exception as error:  # Pillow's decoders raise many kinds for broken files
        raise _broken(error) from None
    return TakenPicture(settled, changes, Image.MIME.get(image.format or "", TakenPicture.media_type))


def take_in_image(image: Image.Image, settings: IntakeSettings = DEFAULTS) -> TakenPicture:
    """The same for a picture in memory, whose file and frame the caller has chosen; it stays as it is.

    Raises:
        PictureRefused: it is too large, or its file is broken.
    """
    changes: list[str] = []
    try:
        _require_few_pixels(image, settings)
        return TakenPicture(_settle(_decode_upright(image, changes), settings, changes), changes)
    except PictureRefused:
        raise
    except Exception as error:  # a picture that Pillow opened is decoded only now
        raise _broken(error) from None


def _open(data: bytes, settings: IntakeSettings) -> "ImageFile":
    """Reads the header."""
    try:
        return Image.open(io.BytesIO(data), formats=readable())
    except UnidentifiedImageError:
        kind = describe(data)
        what = "not a picture" if kind is None else f"not a picture that can be read, but {kind}"
        raise PictureRefused(f"{what}; give a {COMMON} file") from None


def _require_few_pixels(image: Image.Image, settings: IntakeSettings) -> None:
    width, height = image.size
    if not width or not height:
        raise PictureRefused(f"{width} × {height} pixels are no picture; give one with at least one pixel")
    if width * height > settings.max_pixels:
        raise _too_many_pixels(settings, f"{width} × {height} pixels are ")


def _note_frames(image: Image.Image, changes: list[str]) -> None:
    # What Pillow calls frames of a PSD file are its layers; it opens all of them together.
    if getattr(image, "is_animated", False) and image.format != "PSD":
        changes.append("first frame taken of several")


def _decode_upright(image: Image.Image, changes: list[str]) -> Image.Image:
    # Pillow turns TIFF files by itself while it decodes them, and finds PNG's orientation only then.
    orientation = _orientation(image) if image.format == "TIFF" else 1
    image.load()
    still_to_do = _orientation(image)
    if still_to_do != 1:
        orientation, image = still_to_do, ImageOps.exif_transpose(image)
    if orientation in _ORIENTATIONS:
        changes.append(f"{_ORIENTATIONS[orientation]}, as its EXIF orientation {orientation} says")
    return image


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 (upright) where it says nothing that holds."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # broken metadata are no reason to refuse a picture
        return 1
    return found if found in _ORIENTATIONS else 1


def _settle(image: Image.Image, settings: IntakeSettings, changes: list[str]) -> Image.Image:
    image = to_eight_bits(image, changes)
    image = to_opaque(image, settings.background, changes)
    image = to_rgb(image, changes)
    return to_fitting_shape(image, settings, changes)


def _too_many_pixels(settings: IntakeSettings, found: str = "") -> PictureRefused:
    return PictureRefused(f"{found}more than {settings.max_pixels} pixels; scale it down first")


def _broken(error: Exception) -> PictureRefused:
    reason = " ".join(str(error).split()) or type(error).__name__
    return PictureRefused(f"broken ({reason}); save or download it again")
