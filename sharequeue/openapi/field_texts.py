"""Reads the source's words about the fields of a message: the string in the line behind a field,
as Sphinx and pydantic read it.

The text stands beside the field, and the document and docs/calls.md show it. It costs nothing at run time: the modules
are parsed when the document is made.
"""

import ast
import functools
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import msgspec


def field_texts(kind: type[Any]) -> dict[str, str]:
    """The texts of a struct's fields by name, its base classes' included; a field without a text is absent."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            texts |= _texts_in(base.__module__).get(base.__qualname__, {})
    return texts


@functools.cache
def _texts_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """The texts of a module's classes, by the name of the class."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {node.name: _texts_of(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts_of(node: ast.ClassDef) -> Mapping[str, str]:
    texts = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            texts[field.target.id] = " ".join(text.value.value.split())
    return texts
