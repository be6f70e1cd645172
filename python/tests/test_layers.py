"""Modules of the package are layers, and imports go one way."""

import ast
from pathlib import Path

import libmuon

# What a module or folder may import, besides itself and what is above it in this list.
ORDER = [
    {"_core", "_errors"},
    {"_engine", "_fields", "_ranks", "_modules", "_logits", "_scaler"},
    {"_groups", "_model", "_signature", "_state"},
    {"_host", "_inputs"},
    {"_device"},
    {"_build"},
    {"_optimizer"},
    {"_peers"},
    {"__init__"},
]
PACKAGE = Path(libmuon.__file__).parent


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def imports(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node
        elif not is_for_types(node):
            yield from imports(node)


def imported(file: Path) -> set[str]:
    """The modules and folders of the package that a file imports."""
    folder = list(file.relative_to(PACKAGE).parts[:-1])
    found = set()
    for node in imports(ast.parse(file.read_text())):
        path = folder[: len(folder) - node.level + 1]
        path += node.module.split(".") if node.module else []
        found |= {path[0]} if path else {alias.name for alias in node.names}
    return found


def test_imports_go_one_way():
    level = {name: i for i, names in enumerate(ORDER) for name in names}
    for file in sorted(PACKAGE.rglob("*.py")):
        own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for other in imported(file) - {own}:
            assert level[other] < level[own], f"{file.name} imports {other}"
