"""Rewrites a hardware file so that it holds all of its mutants, each to be selected by a number.

``a + 1`` becomes ``_mutation.arithmetic({"off": 7}, "+", a, 1)``, and
:mod:`verif.mutate.runtime` decides what that is. Left alone are ``__init__`` (ports), everything
outside functions, and sizes: arguments of ``Signal``, ``range``, memories and layouts.
"""

import ast
from contextlib import contextmanager

from .operators import DROPPED_RESET, INVERTED, NARROWER, OFF_BY_ONE, SWAPPED, Mutant

__all__ = ["RUNTIME", "rewrite"]

#: Name of the runtime in a rewritten file.
RUNTIME = "_mutation"

_COMPARISONS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-"}
_LOGIC = {ast.BitAnd: "&", ast.BitOr: "|"}
_CONDITIONS = ("If", "Elif")
#: Calls whose arguments are sizes and names.
_SIZES = frozenset(
    {
        "Signal", "like", "range", "Const", "SyncFIFO", "Memory", "StructLayout", "Signature",
        "ArrayLayout", "add_ram", "Instance", "unsigned", "signed", "len", "zip",
    }
)  # fmt: skip


def rewrite(source: str, file: str) -> tuple[ast.Module, list[Mutant]]:
    """The rewritten module, and its mutants in the order of their numbers."""
    tree = ast.parse(source, file)
    rewriter = _Rewriter(file)
    tree = rewriter.visit(tree)
    after_docstring = 1 if ast.get_docstring(tree) is not None else 0
    package, _, module = "verif.mutate.runtime".rpartition(".")
    load = ast.ImportFrom(package, [ast.alias(module, RUNTIME)], 0)
    tree.body.insert(after_docstring, load)
    ast.fix_missing_locations(tree)
    return tree, rewriter.mutants


class _Rewriter(ast.NodeTransformer):
    """Walks the functions of a file; ``mutants`` are those met so far."""

    def __init__(self, file):
        self.file = file
        self.mutants = []
        self._scope = []
        self._context = None  # text of the assignment or condition that is being visited
        self._domain = None
        self._targets = {}
        self._seen = {}
        self._machines = 0

    # Where it is -----------------------------------------------------------------------------

    def visit_ClassDef(self, node):
        return self._body(node)

    def visit_FunctionDef(self, node):
        return node if node.name == "__init__" else self._body(node)

    def _body(self, node):
        self._scope.append(node.name)
        node.body = self._statements(node.body)
        self._scope.pop()
        return node

    def _statements(self, statements):
        result = []
        for statement in statements:
            changed = self.visit(statement)
            result += changed if isinstance(changed, list) else [changed]
        return result

    def generic_visit(self, node):
        outside = not self._scope
        if outside and isinstance(node, ast.stmt):
            return node
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            with self._within(node):
                return super().generic_visit(node)
        return super().generic_visit(node)

    def visit_Module(self, node):
        node.body = self._statements(node.body)
        return node

    @contextmanager
    def _within(self, node):
        outer, self._context = self._context, ast.unparse(node)
        yield
        self._context = outer

    def _leave_alone(self, node):
        return node

    visit_Assert = visit_Raise = visit_JoinedStr = visit_arguments = _leave_alone

    def visit_AugAssign(self, node):
        target = node.target
        of_domain = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "m.d"
        outer, self._domain = self._domain, target.attr if of_domain else None
        with self._within(node):
            node.value = self.visit(node.value)
        self._domain = outer
        return node

    # Mutants ---------------------------------------------------------------------------------

    def _add(self, node, operator, change):
        if isinstance(change, tuple):
            change = " -> ".join(ast.unparse(part) for part in change)
        statement = self._context or ""
        key = ".".join(self._scope), operator, statement, change
        twin = self._seen[key] = self._seen.get(key, -1) + 1
        mutant = Mutant(
            number=len(self.mutants) + 1,
            file=self.file,
            line=node.lineno,
            scope=key[0],
            operator=operator,
            statement=statement,
            change=change,
            twin=twin,
        )
        self.mutants.append(mutant)
        return mutant.number

    def visit_With(self, node):
        call = node.items[0].context_expr
        if not _is_method(call, "FSM"):
            return self.generic_visit(node)
        if node.items[0].optional_vars is None:
            self._machines += 1
            node.items[0].optional_vars = ast.Name(f"_states{self._machines}", ast.Store())
        name = node.items[0].optional_vars.id
        number = self._add(node, DROPPED_RESET, "the state machine keeps its state through a reset")
        node = self.generic_visit(node)
        state = ast.Attribute(ast.Name(name, ast.Load()), "state", ast.Load())
        return [node, ast.Expr(_call("keep", {"reset": number}, state))]

    def visit_Call(self, node):
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", None))
        if name in _SIZES:
            return node
        if len(node.args) == 1 and not node.keywords:
            if name in _CONDITIONS:
                return self._condition(node)
            if name == "eq" and isinstance(function, ast.Attribute):
                return self._assignment(node)
        if name == "Mux" and len(node.args) == 3:
            test, high, low = node.args
            changed = ast.Call(function, [test, low, high], [])
            number = self._add(node, SWAPPED, (node, changed))
            return _call("choice", {"swap": number}, *map(self.visit, node.args))
        return self.generic_visit(node)

    def _condition(self, node):
        (test,) = node.args
        with self._within(node):
            number = self._add(node, INVERTED, f"{ast.unparse(test)} -> its opposite")
            if _is_inverted(test):
                test.operand = self.visit(test.operand)
            elif _is_equality(test):
                test = self._compare(test, inverted=False)
            else:
                test = self.visit(test)
        node.args = [_call("condition", {"invert": number}, test)]
        return node

    def _assignment(self, node):
        target, (value,) = node.func.value, node.args
        text, numbers = ast.unparse(target), {}
        with self._within(node):
            if self._domain == "sync":
                if isinstance(value, ast.Constant) and value.value == 0:
                    numbers["clear"] = self._add(node, DROPPED_RESET, f"{text}.eq(0) left out")
                numbers["reset"] = self._of_target(
                    node, text, DROPPED_RESET, f"{text} keeps its value through a reset"
                )
            numbers["narrow"] = self._of_target(
                node, text, NARROWER, f"the top bit of {text} is always 0"
            )
            return _call("assign", numbers, self.visit(target), self.visit(value))

    def _of_target(self, node, text, operator, change):
        """Number of the mutant that all assignments to one signal of a class share."""
        key = (self._scope[0], operator, text)
        if key not in self._targets:
            outer, self._context = self._context, text
            self._targets[key] = self._add(node, operator, change)
            self._context = outer
        return self._targets[key]

    def visit_BinOp(self, node, *, inner=False):
        kind = type(node.op)
        if kind in _LOGIC:
            other = ast.BitOr() if kind is ast.BitAnd else ast.BitAnd()
            number = self._add(node, SWAPPED, (node, ast.BinOp(node.left, other, node.right)))
            left, right = self.visit(node.left), self.visit(node.right)
            return _call("logic", {"swap": number}, ast.Constant(_LOGIC[kind]), left, right)
        if kind not in _ARITHMETIC:
            return self.generic_visit(node)
        numbers = {}
        if not inner:  # of a chain, the last
            more = ast.BinOp(node, ast.Add(), ast.Constant(1))
            numbers["off"] = self._add(node, OFF_BY_ONE, (node, more))
        if kind is ast.Sub:
            changed = ast.BinOp(node.right, node.op, node.left)
            numbers["swap"] = self._add(node, SWAPPED, (node, changed))
        left, right = (
            self.visit_BinOp(operand, inner=True) if _is_sum(operand) else self.visit(operand)
            for operand in (node.left, node.right)
        )
        if not numbers:
            node.left, node.right = left, right
            return node
        return _call("arithmetic", numbers, ast.Constant(_ARITHMETIC[kind]), left, right)

    def visit_UnaryOp(self, node):
        if not _is_inverted(node):
            return self.generic_visit(node)
        number = self._add(node, INVERTED, (node, node.operand))
        return _call("inverse", {"invert": number}, self.visit(node.operand))

    def visit_Compare(self, node):
        return self._compare(node, inverted=True)

    def _compare(self, node, *, inverted):
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            return self.generic_visit(node)
        symbol, right, numbers = _COMPARISONS[type(node.ops[0])], node.comparators[0], {}
        before = ast.unparse(node)
        if symbol in _MOVED:
            text = f"{ast.unparse(node.left)} {_MOVED[symbol]} {ast.unparse(right)}"
            numbers["off"] = self._add(node, OFF_BY_ONE, f"{before} -> {text}")
        else:
            text = f"{ast.unparse(node.left)} {symbol} {ast.unparse(right)} + 1"
            numbers["off"] = self._add(node, OFF_BY_ONE, f"{before} -> {text}")
            if inverted:
                numbers["invert"] = self._add(node, INVERTED, f"{before} -> its opposite")
        operands = self.visit(node.left), self.visit(right)
        return _call("comparison", numbers, ast.Constant(symbol), *operands)


def _is_method(node, name):
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    )


def _is_sum(node):
    return isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC


def _is_inverted(node):
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


def _is_equality(node):
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq))


def _call(name, numbers, *arguments):
    function = ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
    keys = [ast.Constant(key) for key in numbers]
    values = [ast.Constant(number) for number in numbers.values()]
    return ast.Call(function, [ast.Dict(keys, values), *arguments], [])
