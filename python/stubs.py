"""Copies the docstrings of the extension module into its stub, or with `--check` compares them.

The text is written once, in the sources of the module: `help()` shows it there, and an editor reads the stub.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

from annals import _annals

STUB = Path(__file__).parent / "py" / "annals" / "_annals.pyi"


def own_doc(holder: object, name: str) -> str | None:
    """Returns the docstring that a class gives a member, `None` if it inherits one."""
    if name in ("__new__", "__init__") or (name.startswith("__") and name != "__getitem__"):
        return None
    member = getattr(holder, name, None)
    return getattr(member, "__doc__", None)


def docstring(text: str, indent: int) -> list[str]:
    """Returns the lines of a docstring."""
    lines = [line.rstrip() for line in textwrap.dedent(text).strip().splitlines()]
    space = " " * indent
    if len(lines) == 1:
        return [f'{space}"""{lines[0]}"""']
    return [f'{space}"""{lines[0]}', *((space + line).rstrip() for line in lines[1:]), f'{space}"""']


def documented(source: str) -> str:
    """Returns the stub with the docstrings of the module."""
    lines = source.splitlines()
    # From the last to the first, so that the numbers of the lines before stay right.
    edits: list[tuple[int, int, list[str]]] = []

    def add(node: ast.ClassDef | ast.FunctionDef, doc: str | None) -> None:
        first = node.body[0]
        is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.value.value is not ...
        if doc is None:
            return
        text = docstring(doc, node.col_offset + 4)
        if is_doc:
            edits.append((first.lineno - 1, first.end_lineno or first.lineno, text))
        elif isinstance(node, ast.FunctionDef):
            line = lines[first.lineno - 1]
            assert line.endswith(" ..."), line
            edits.append((first.lineno - 1, first.lineno, [line[: -len(" ...")], *text]))
        else:
            edits.append((first.lineno - 1 - decorators(first), first.lineno - 1 - decorators(first), text))

    def decorators(node: ast.stmt) -> int:
        return len(getattr(node, "decorator_list", []))

    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            add(node, getattr(_annals, node.name).__doc__)
        if isinstance(node, ast.ClassDef):
            holder = getattr(_annals, node.name)
            add(node, holder.__doc__)
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    add(member, own_doc(holder, member.name))
    for begin, end, text in sorted(edits, reverse=True):
        lines[begin:end] = text
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the stub, or with `--check` returns 1 if it would change."""
    source = STUB.read_text(encoding="utf-8")
    made = documented(source)
    if "--check" in sys.argv[1:]:
        return int(made != source)
    STUB.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
