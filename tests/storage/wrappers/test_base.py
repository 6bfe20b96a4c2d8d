"""A wrapper passes on all that a storage offers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from cpreplicate.errors import TargetGone
from cpreplicate.storage import Storage
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.memory import MemoryStorage

URI = "memory:/a"
# what a storage offers for itself and for its wrappers alike, by calling its own verbs
OF_BOTH = {"carry_out", "as_one", "ask", "unwrapped", "inside"}
VERBS = sorted(
    name
    for name, member in inspect.getmembers(Storage, callable)
    if not name.startswith("_") and name not in OF_BOTH
)
ATTRIBUTES = sorted(
    name
    for name, member in inspect.getmembers(Storage)
    if not name.startswith("_") and name not in OF_BOTH and not callable(member)
)


class Recording(MemoryStorage):
    """Answers each verb with its own name, and records it."""

    def __getattribute__(self, name: str) -> Any:
        if name not in VERBS:
            return super().__getattribute__(name)
        return lambda *_arguments: name


def arguments_of(verb: str) -> list[Any]:
    """Return an argument for each parameter of a verb."""
    parameters = list(inspect.signature(getattr(Storage, verb)).parameters)[1:]
    return [URI if name in ("uri", "new_uri", "other") else name for name in parameters]


def test_there_are_verbs_and_attributes_to_be_passed_on():
    assert {"put", "list", "space"} <= set(VERBS)
    assert {"streams", "copies_within", "unusable"} <= set(ATTRIBUTES)


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrapper_passes_each_verb_on(verb):
    answer = getattr(StorageWrapper(Recording()), verb)(*arguments_of(verb))
    assert answer == verb


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrapper_states_each_verb_itself(verb):
    assert verb in vars(StorageWrapper), "else the verb of the base class would answer for it"


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_wrapper_has_the_attributes_of_its_storage(attribute):
    inner = MemoryStorage()
    setattr(inner, attribute, value := object())
    assert getattr(StorageWrapper(inner), attribute) is value


def test_a_wrapper_of_a_storage_that_makes_no_directory_wraps_that_of_its_storage(tmp_path):
    wrapper = StorageWrapper(LocalStorage()).inside(f"file:{tmp_path}/replica")
    assert isinstance(wrapper, StorageWrapper)
    with pytest.raises(TargetGone):
        wrapper.put(f"file:{tmp_path}/replica/file", lambda: [])
