"""The 105 kinds of object and the eight background colours that the pocket model knows."""

from dataclasses import dataclass
from functools import cached_property

_TABLE = """
apple 1f34e|banana 1f34c|lemon 1f34b|cherry 1f352|peach 1f351|pear 1f350|strawberry 1f353|pineapple 1f34d|
watermelon 1f349|tomato 1f345|carrot 1f955|corn 1f33d|mushroom 1f344|bread 1f35e|cheese 1f9c0|egg 1f95a|
pizza 1f355|cake 1f382|cookie 1f36a|cat 1f431|dog 1f436|horse 1f434|cow 1f42e|pig 1f437|
rabbit 1f430 bunny|bear 1f43b|lion 1f981|tiger 1f42f|elephant 1f418|monkey 1f435|chicken 1f414|duck 1f986|owl 1f989|
eagle 1f985|penguin 1f427|frog 1f438|snake 1f40d|turtle 1f422|whale 1f433|dolphin 1f42c|shark 1f988|crab 1f980|
bee 1f41d|butterfly 1f98b|spider 1f577|snail 1f40c|ant 1f41c|fox 1f98a|zebra 1f993|car 1f697|bus 1f68c|truck 1f69a|
train 1f686|bicycle 1f6b2 bike|plane 2708 airplane|helicopter 1f681|rocket 1f680|tractor 1f69c|ambulance 1f691|
tree 1f333|rose 1f339|cactus 1f335|sun 1f31e|moon 1f319|star 2b50|cloud 2601|rainbow 1f308|fire 1f525 flame|
umbrella 2602|house 1f3e0|castle 1f3f0|church 26ea|tent 26fa|football 1f3c8|guitar 1f3b8|drum 1f941|trumpet 1f3ba|
book 1f4d5|pencil 270f|key 1f511|lock 1f512|clock 23f0|phone 1f4f1|camera 1f4f7|lamp 1f526 torch flashlight|
candle 1f56f|bell 1f514|gift 1f381 present|balloon 1f388|crown 1f451|hat 1f3a9|shirt 1f455|dress 1f457|
diamond 1f48e gem|heart 2764|flag 1f6a9|robot 1f916|ghost 1f47b|skull 1f480|medal 1f3c5|chair 1fa91|cup 2615|
anchor 2693|sword 1f5e1|kite 1fa81
"""

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (225, 60, 55),
    "blue": (70, 120, 225),
    "green": (75, 170, 85),
    "yellow": (250, 220, 80),
    "white": (238, 238, 238),
    "gray": (140, 140, 140),
    "pink": (250, 165, 200),
    "purple": (140, 75, 180),
}
NUMBERS = ("no", "one", "two", "three", "four", "five")


@dataclass(frozen=True)
class Kind:
    """A kind of object: its name, the emoji that draws it, and other names that count as right."""

    name: str
    codepoint: int
    synonyms: tuple[str, ...] = ()

    @cached_property
    def plural(self) -> str:
        if self.name.endswith(("s", "x", "ch", "sh")):
            return self.name + "es"
        if self.name.endswith("y") and self.name[-2] not in "aeiou":
            return self.name[:-1] + "ies"
        return self.name + "s"

    @cached_property
    def with_article(self) -> str:
        return ("an " if self.name[0] in "aeiou" else "a ") + self.name

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every word that counts as this kind in an answer, singular and plural."""
        singular = (self.name, *self.synonyms)
        return tuple(form for name in singular for form in (name, Kind(name, 0).plural))


def _parse(entry: str) -> Kind:
    name, codepoint, *synonyms = entry.split()
    return Kind(name, int(codepoint, 16), tuple(synonyms))


KINDS: tuple[Kind, ...] = tuple(
    _parse(entry) for entry in _TABLE.replace("\n", "").split("|") if entry.strip()
)
