"""The public API: what `rookery` exports is documented, argument by argument."""

import inspect
import re

import pytest

import rookery

CLASSES = [
    name
    for name in rookery.__all__
    if name[0].isupper() and not name.endswith("Error") and name not in ("Diverged", "UpdateBatch", "UpdateState")
]
FUNCTIONS = [name for name in rookery.__all__ if name[0].islower() and name != "__version__"]


def undocumented(thing, text):
    parameters = [p for p in inspect.signature(thing).parameters if p.strip("_") not in ("", "self", "args", "kwargs")]
    return [p for p in parameters if not re.search(rf"\b{p}\b", text)]


@pytest.mark.parametrize("name", CLASSES)
def test_a_constructor_documents_its_arguments(name):
    thing = getattr(rookery, name)
    assert thing.__doc__
    if name in ("Config", "Schedule", "Message"):  # made of fields, which are documented line by line
        return
    text = f"{thing.__doc__}\n{thing.__init__.__doc__ or ''}"
    assert not undocumented(thing, text), "say in its docstring what they are"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_documents_its_arguments(name):
    thing = getattr(rookery, name)
    short = {
        "names",
        "lookup",
        "collate",
        "decollate",
        "time_collate",
        "json_schema",
    }  # one argument, named by the sentence
    assert thing.__doc__
    assert name in short or not undocumented(thing, thing.__doc__)
