"""The machine over pyfuse3's handlers, with trio's scheduler and the worker threads made deterministic; and groups of
calls beside each other, whose schedule a seed gives."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model import groups
from model.administered import AdministeredMachine
from model.machine import EXAMPLES, STEPS, Target
from model.operations_target import OperationsTarget
from model.together import Call
from model.tree import Tree


class OperationsMachine(AdministeredMachine):
    target: OperationsTarget

    def make_target(self) -> Target:
        return OperationsTarget()

    @rule(scripts=groups.scripts, seed=st.integers(0, 1 << 32), end=st.sampled_from(groups.ENDS))
    def together(self, scripts: list[list[Call]], seed: int, end: str) -> None:
        """Some order of the calls explains what they answered and left; what others have open stays as it is."""
        self.target.sync()
        outcome = groups.run(self.target, self.model, groups.possible(self.model, scripts), seed, end)
        if outcome.stopped:
            self.writers.clear()
            self.held.clear()
            self.model = Tree.of(outcome.found)
        else:
            self.model = outcome.tree
            self.target.sync()
        self.states = [self.model.seen()]


TestOperationsModel = OperationsMachine.TestCase
TestOperationsModel.settings = settings(max_examples=EXAMPLES or 10, stateful_step_count=STEPS, deadline=None)
