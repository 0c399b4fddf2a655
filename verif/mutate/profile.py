"""What is known of tests before any mutant is tried on them."""

from dataclasses import dataclass, field

from .runtime import GENERATOR, HARDWARE, NOTHING

__all__ = ["Profile"]


@dataclass
class Profile:
    """The tests without a mutant.

    Members
    -------
    tests : node id -> CPU ``seconds`` (None: not measured yet), whether ``compiled`` simulations
        are part of it, and ``met``: number of a mutant that it elaborates -> kind
    at_import : mutants that show when the file is imported
    name : of these tests, in messages
    """

    tests: dict = field(default_factory=dict)
    at_import: dict = field(default_factory=dict)
    name: str = ""

    def reaching(self, number, *, compiled):
        """Tests that elaborate a mutant."""
        return [
            name
            for name, test in self.tests.items()
            if test["compiled"] == compiled and str(number) in test["met"]
        ]

    def kind(self, number):
        """What the mutant is part of, in the test where that is most; None: no test meets it."""
        kinds = {test["met"].get(str(number)) for test in self.tests.values()}
        return next((kind for kind in (HARDWARE, GENERATOR, NOTHING) if kind in kinds), None)
