"""Small pictures made in code: each differs from the others in shape, colour and size."""

from PIL import Image, ImageDraw


def red_square() -> Image.Image:
    picture = Image.new("RGB", (112, 84), "white")
    ImageDraw.Draw(picture).rectangle((20, 20, 60, 60), fill="red")
    return picture


def blue_disc() -> Image.Image:
    picture = Image.new("RGB", (84, 112), "lightyellow")
    ImageDraw.Draw(picture).ellipse((14, 30, 70, 86), fill="blue")
    return picture


def stripes() -> Image.Image:
    picture = Image.new("RGB", (140, 56), "black")
    for left in range(0, 140, 20):
        ImageDraw.Draw(picture).rectangle((left, 0, left + 9, 55), fill="lime")
    return picture


PICTURES = {"red_square": red_square, "blue_disc": blue_disc, "stripes": stripes}
