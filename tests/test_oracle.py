"""The oracle itself: it agrees with transformers' own `generate`, and counts drafts as one would by hand."""

from collections.abc import Callable

from PIL.Image import Image

from tests.engine.scenarios import chat
from tests.oracle import Oracle, prompt_lookup, speculate


def test_greedy_loop_is_transformers_generate(
    family: str, oracles: Callable[[str], Oracle], pictures: dict[str, Image]
) -> None:
    oracle = oracles(family)
    request = chat(family, "What is in the picture?", ("red_square",))
    prompt = oracle.prompt(request.text, [pictures["red_square"]])
    generated = oracle.model.generate(**prompt, max_new_tokens=10, min_new_tokens=10, do_sample=False)
    assert oracle.greedy(prompt, 10) == generated[0, prompt["input_ids"].shape[1] :].tolist()


def test_speculation_counts_what_is_accepted(oracles: Callable[[str], Oracle]) -> None:
    oracle = oracles("llama")
    prompt = oracle.prompt("Count the apples.")
    answer = oracle.greedy(prompt, 12)
    start = prompt["input_ids"].shape[1]

    right = speculate(oracle, prompt, lambda tokens: answer[len(tokens) - start :][:2], 7)
    assert (right.tokens, right.proposed, right.accepted) == (answer[:7], [2, 2], [2, 2])

    wrong = speculate(oracle, prompt, lambda tokens: [0, 0], 4)
    assert (wrong.tokens, wrong.proposed, wrong.accepted) == (answer[:4], [2, 2, 2], [0, 0, 0])

    silent = speculate(oracle, prompt, lambda tokens: [], 4)
    assert (silent.tokens, silent.proposed, silent.accepted) == (answer[:4], [], [])


def test_prompt_lookup_takes_the_longest_match_and_the_runner_says_which_of_equals() -> None:
    tokens = [1, 2, 3, 9, 2, 3, 7, 1, 2, 3]
    assert prompt_lookup(count=2, shortest=1, longest=3)(tokens) == [9, 2]
    assert prompt_lookup(count=2, shortest=1, longest=2)(tokens) == [9, 2]
    assert prompt_lookup(count=2, shortest=1, longest=2, latest=True)(tokens) == [7, 1]
    assert prompt_lookup(count=2, shortest=1, longest=2)([1, 2, 3]) == []
    assert prompt_lookup(count=2, shortest=1, longest=2, padded=True)([1, 2, 3]) == [3, 3]
