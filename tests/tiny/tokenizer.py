"""One small byte-level BPE tokenizer with the special tokens of every family.

All tiny models share it, so that any of them can draft for any other.
"""

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
QWEN_IMAGE = "<|image_pad|>"
LLAVA_IMAGE = "<image>"
SPECIAL_TOKENS = [
    PAD,
    "<|im_start|>",
    END_OF_TURN,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    QWEN_IMAGE,
    "<|video_pad|>",
    LLAVA_IMAGE,
]

QWEN_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type in ('image', 'image_url') or 'image' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role | upper }}: "
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type in ('image', 'image_url') or 'image' in part %}<image>\n"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %} "
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)

_CORPUS = """
user assistant system USER ASSISTANT What is in the picture? Describe the image in one sentence.
A red square lies left of a green circle, and the blue triangle is above both of them.
How many animals do you see? There are three cats and two dogs on a yellow background.
Which colour has the largest object? Is there a bicycle in the photograph? No, there is only a car.
The quick brown fox jumps over the lazy dog while the small bird watches from the old tree.
Count the apples: one, two, three, four, five. Then say which of them is nearest to the edge.
Please compare the first picture with the second picture and tell me what has changed between them.
Speculative decoding drafts several tokens, and the target verifies all of them in one forward pass.
Once upon a time a young painter walked along the river until the morning light touched the houses.
"""


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """Returns the shared tokenizer: 256 bytes, a few hundred merges, then the special tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512 - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_CORPUS.splitlines(), trainer)
    bpe.add_special_tokens(SPECIAL_TOKENS)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END_OF_TURN,
        additional_special_tokens=[token for token in SPECIAL_TOKENS if token not in (PAD, END_OF_TURN)],
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def said_tokens() -> list[int]:
    """Returns the sixteen tokens that a tiny model's greedy answer is made of."""
    vocabulary = build_tokenizer().get_vocab()
    letters = "abcdefghijklmnop"
    return [vocabulary[letter] for letter in letters]
