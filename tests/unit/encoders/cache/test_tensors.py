"""Tensors through files: bit for bit, in every dtype."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmspec.encoders.cache import FolderTier
from mmspec.encoders.cache.entry import ITEM_BYTES
from mmspec.encoders.cache.tensors import _DTYPES, entry_of, fingerprint, tensor_of
from tests.unit.encoders.cache.entries import key


def drawn(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    size = torch.Size(shape).numel() * dtype.itemsize
    generator = torch.Generator().manual_seed(1)
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes, since random ones are often no number."""
    found: list[int] = tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    return found


@pytest.mark.parametrize("dtype", _DTYPES.values(), ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    tier = FolderTier(tmp_path, 10**6)
    tensor = drawn(dtype, 5, 3)
    tier.put(key(1), entry_of(tensor))
    found = tier.get(key(1))
    assert found is not None
    back = tensor_of(found)

    assert back.dtype == dtype and back.shape == tensor.shape and bits(back) == bits(tensor)
    if dtype not in (torch.complex64,):
        (file,) = (tmp_path / "entries").iterdir()
        assert bits(load_file(file)["features"]) == bits(tensor)


def test_the_names_are_those_of_the_format() -> None:
    assert {name: dtype.itemsize for name, dtype in _DTYPES.items()} == ITEM_BYTES


@pytest.mark.parametrize("shape", [(), (0, 4), (1, 2, 3)], ids=str)
def test_every_shape(shape: tuple[int, ...]) -> None:
    tensor = drawn(torch.bfloat16, *shape)
    back = tensor_of(entry_of(tensor))

    assert back.shape == tensor.shape and bits(back) == bits(tensor)


def test_an_entry_has_memory_of_its_own() -> None:
    batch = torch.arange(12.0).reshape(4, 3)
    entry = entry_of(batch[1:3])
    batch.zero_()

    assert tensor_of(entry).tolist() == [[3, 4, 5], [6, 7, 8]]
    assert tensor_of(entry_of(batch.T)).shape == (3, 4)


def test_a_gradient_is_not_kept() -> None:
    tensor = torch.ones(2, requires_grad=True)

    assert not tensor_of(entry_of(tensor)).requires_grad


def test_a_dtype_that_files_do_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="complex128"):
        entry_of(torch.zeros(1, dtype=torch.complex128))


def test_fingerprints_differ_by_value_name_dtype_and_shape() -> None:
    weights = {"a": torch.ones(2, 3), "b": torch.zeros(4)}
    changes = [
        {**weights, "a": torch.full((2, 3), 1 + 1e-6)},
        {**weights, "a": torch.ones(3, 2)},
        {**weights, "a": torch.ones(2, 3, dtype=torch.bfloat16)},
        {"a": weights["a"], "c": weights["b"]},
        {"a": weights["a"]},
    ]
    base = fingerprint(weights.items())

    assert base == fingerprint(reversed([(name, value.clone()) for name, value in weights.items()]))
    assert len({base, *(fingerprint(change.items()) for change in changes)}) == 1 + len(changes)


def test_an_entry_compares_by_content() -> None:
    entry = entry_of(torch.ones(2))

    assert entry == dataclasses.replace(entry, data=memoryview(bytes(entry.data)))
