"""Models given by one Python function per edge, for small worlds with known answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.reference.tree_search import Step
from zero_tune.types import Array, RootOutput, StepOutput


class ScalarWorld:
    """A model from ``step(state, action) -> Step``; states are any Python values."""

    def __init__(self, step: Callable[[Any, Any], Step], *, chance: bool = False) -> None:
        self.step = step
        self.chance = chance

    def roots(self, outputs: list[Step]) -> RootOutput:
        policy = np.array([o.policy for o in outputs], np.float32)
        value = np.array([o.value for o in outputs], np.float32)
        return RootOutput(policy, value, {"rows": [o.state for o in outputs]})  # type: ignore[arg-type, dict-item]

    def node_store(self, root: RootOutput, num_simulations: int) -> ScalarStore:
        return ScalarStore(self, root)


class ScalarStore:
    def __init__(self, world: ScalarWorld, root: RootOutput) -> None:
        self.world = world
        self.states: list[list[Any]] = [list(root.state["rows"])]

    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        outputs = []
        for b, (p, a) in enumerate(zip(parent, action, strict=True)):
            chosen = int(a[0]) if a.dtype == np.int32 else a.copy()
            outputs.append(self.world.step(self.states[p][b], chosen))
        assert len(self.states) == node
        self.states.append([o.state for o in outputs])
        flags = np.array([o.is_chance for o in outputs]) if self.world.chance else None
        return StepOutput(
            np.array([o.reward for o in outputs], np.float32),  # type: ignore[arg-type]
            np.array([o.policy for o in outputs], np.float32),  # type: ignore[arg-type]
            np.array([o.value for o in outputs], np.float32),  # type: ignore[arg-type]
            {},
            flags,  # type: ignore[arg-type]
        )
