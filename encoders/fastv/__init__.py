"""FastV in prefill: behind layer K only the visual tokens that the prompt attends to go on.

`settings` and `budget` say what is asked for, `book` which prompts a step prunes, `rows` and `metadata` what that means
for the deeper layers' KV cache, `scores` which tokens stay, and `pruner` does it in a forward pass.
"""
