"""Finds the loops of a source file that can go on after a restart, and puts calls into their heads. Nothing is executed.

    for batch in loader:    ->    for batch in __paceline_loop__(12, loader):

    while step < most:      ->    __paceline_while__(14, 20)
                                  while __paceline_again__(14) and (step < most):

The numbers are the lines of a loop: its first one, and of a `while` the last one of its body. Lines, columns and everything else stay, so
tracebacks, debuggers and coverage show the file as it is. Loops that torch.compile may trace are left alone, loops without a call, which
cannot contain a step, and lines with the comment `# paceline: no-resume`. A file that imports `steps` from `paceline.resume` says itself
which loops go on.
"""

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterator

CALL = "__paceline_loop__"
WHILE = "__paceline_while__"
AGAIN = "__paceline_again__"
ForOrWhile = ast.For | ast.While
_NOT_THIS_LOOP = re.compile(r"#\s*paceline:\s*no-resume\b")


def loops_to_continue(tree: ast.Module, text: str) -> list[ForOrWhile]:
    """The loops of a parsed file that can go on after a restart, in the order of the text. `text`: of the file, as `decoded` returns it."""
    if _is_done_by_hand(tree):
        return []
    found = _Loops(tree)
    found.visit(tree)
    lines = _lines(text)
    return [
        loop for loop in found.loops if not any(map(_NOT_THIS_LOOP.search, lines[loop.lineno - 1 : _head_end(loop)]))
    ]


def put_calls(tree: ast.Module, text: str) -> bool:
    """Put the calls into the heads of these loops, in the tree. Returns whether there is such a loop. `text`: as above."""
    loops = loops_to_continue(tree, text)
    for loop in loops:
        if isinstance(loop, ast.For):
            loop.iter = _call(loop.iter, CALL, loop.lineno, loop.iter)
        else:
            again = _call(loop.test, AGAIN, loop.lineno)
            loop.test = ast.copy_location(ast.BoolOp(ast.And(), [again, loop.test]), loop.test)
    whiles = {loop for loop in loops if isinstance(loop, ast.While)}
    if whiles:
        _Before(whiles).visit(tree)
    return bool(loops)


def with_calls(text: str) -> str:
    """The text of a file, with the calls.

    Raises:  SyntaxError, ValueError: the text is not Python
    Holds:   the tree of the returned text is what put_calls makes of the tree of `text`, but for the numbers of lines
    """
    data = [line.encode() for line in _lines(text)]
    # From the end on, so that the places before stay where they are.
    for loop in sorted(loops_to_continue(ast.parse(text), text), key=lambda loop: -loop.lineno):
        if isinstance(loop, ast.For):
            # A tuple may have no brackets of its own.
            opened, closed = ("(", ")") if isinstance(loop.iter, ast.Tuple) else ("", "")
            _put_around(data, loop.iter, f"{CALL}({loop.lineno}, {opened}", f"{closed})")
        else:
            _put_around(data, loop.test, f"{AGAIN}({loop.lineno}) and (", ")")
            indent = data[loop.lineno - 1][: loop.col_offset]
            data.insert(loop.lineno - 1, indent + f"{WHILE}({loop.lineno}, {_last_line(loop)})".encode())
    return b"\n".join(data).decode()


def diff(text: str, path: str) -> str:
    """The calls as a unified diff; empty if there are none.

    Raises:  SyntaxError, ValueError: the text is not Python
    """
    before, after = _lines(text), _lines(with_calls(text))
    return "\n".join(difflib.unified_diff(before, after, path, f"{path} (as it runs)", lineterm="", n=1))


def decoded(source: bytes | str) -> str:
    """The text of a source file, in the encoding that it names, with "\\n" at the ends of lines.

    Raises:  SyntaxError, UnicodeDecodeError: the encoding is unknown, or is another one
    """
    if isinstance(source, bytes):
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        source = source.decode(encoding)
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _lines(text: str) -> list[str]:
    # str.splitlines knows more ends of lines than Python's grammar.
    return text.split("\n")


def _head_end(loop: ForOrWhile) -> int:
    """The last line of `for ... in ...:` or `while ...:`, without lines of the body."""
    last = loop.iter if isinstance(loop, ast.For) else loop.test
    return max(loop.lineno, min(last.end_lineno or loop.lineno, loop.body[0].lineno))


def _last_line(loop: ast.While) -> int:
    return loop.body[-1].end_lineno or loop.body[-1].lineno


def _call(where: ast.expr, name: str, *arguments: int | ast.expr) -> ast.Call:
    made = [
        argument if isinstance(argument, ast.expr) else ast.copy_location(ast.Constant(argument), where)
        for argument in arguments
    ]
    return ast.copy_location(ast.Call(ast.copy_location(ast.Name(name, ast.Load()), where), made, []), where)


def _put_around(data: list[bytes], node: ast.expr, before: str, after: str) -> None:
    """Put text around an expression. `data`: the lines of the file."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    for number, column, inserted in (
        (node.end_lineno, node.end_col_offset, after),
        (node.lineno, node.col_offset, before),
    ):
        line = data[number - 1]
        data[number - 1] = line[:column] + inserted.encode() + line[column:]


def _is_done_by_hand(tree: ast.Module) -> bool:
    """Whether the file imports `paceline.resume`, or `steps` from it."""
    for node in ast.walk(tree):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        parent, _, last = module.rpartition(".")
        if (parent, last) == ("paceline", "resume") and names & {"steps", "*"}:
            return True
        if (module == "paceline" and "resume" in names) or (
            not module and ["paceline", "resume"] in [name.split(".") for name in names]
        ):
            return True
    return False


class _Before(ast.NodeTransformer):
    """Puts the call in front of each of these loops."""

    def __init__(self, whiles: set[ast.While]) -> None:
        self._whiles = whiles

    def visit_While(self, node: ast.While) -> ast.While | list[ast.stmt]:
        self.generic_visit(node)
        if node not in self._whiles:
            return node
        call = _call(node.test, WHILE, node.lineno, _last_line(node))
        # It has the line of the condition, so that a debugger does not stop twice.
        return [ast.copy_location(ast.Expr(call), call), node]


class _Loops(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.loops: list[ForOrWhile] = []
        self._modules: set[str] = set()
        self._compiled = set(_handed_to_compile(tree))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(_name(base).endswith("Module") or _name(base) in self._modules for base in node.bases):
            self._modules.add(node.name)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if (
            node.name != "forward"
            and node.name not in self._compiled
            and not any(map(_is_compile, node.decorator_list))
        ):
            self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_For(self, node: ForOrWhile) -> None:
        if any(isinstance(inner, ast.Call) for statement in node.body for inner in ast.walk(statement)):
            self.loops.append(node)
        self.generic_visit(node)

    visit_While = visit_For


def _handed_to_compile(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _is_compile(node.func):
            yield _name(node.args[0])


def _is_compile(node: ast.expr) -> bool:
    """Whether this is torch.compile, called with options or not, or handed to `partial`."""
    return any(_name(part) == "compile" for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _name(node: ast.expr) -> str:
    """The last word of a dotted name; empty for other expressions."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
