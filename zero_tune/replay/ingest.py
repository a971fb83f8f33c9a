"""Checks of a segment at the door: shapes, order of steps, finite numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from zero_tune.errors import NonFiniteError
from zero_tune.types import Array, EnvSpec, Segment


class SegmentCheck:
    """Checks segments against one environment and search; holds no state.

    Args:
        env: shapes and dtypes.
        num_slots: policy weights per transition.
        candidate_dim: size of one candidate action, 0 where slot k stands for action k.
    """

    def __init__(self, env: EnvSpec, num_slots: int, candidate_dim: int) -> None:
        self._env, self._num_slots, self._candidate_dim = env, num_slots, candidate_dim

    def __call__(self, segment: Segment) -> None:
        """Accept ``segment`` or raise.

        Raises:
            ValueError: an array is missing, or has the wrong shape or dtype, or steps are not in order.
            NonFiniteError: a quantity is NaN or infinite.
        """
        self._check_shapes(segment)
        self._check_steps(segment)
        self._check_finite(segment)

    def _shapes(self, length: int) -> Mapping[str, tuple[int, ...]]:
        env, states = self._env, length + 1
        num_actions = env.action.size if env.action.kind == "discrete" else 0
        shapes: dict[str, tuple[int, ...]] = {
            "obs": (states, *env.obs_shape),
            "action": (length, env.action.dim),
            "reward": (length,),
            "root_value": (length,),
            "pred_value": (length,),
            "weights": (length, self._num_slots),
            "legal": (states, num_actions),
            "to_play": (states,),
            "timestep": (length,),
        }
        if self._candidate_dim:
            shapes["candidates"] = (length, self._num_slots, self._candidate_dim)
        if env.chance_size:
            shapes["chance"] = (length,)
        return shapes

    def _check_shapes(self, segment: Segment) -> None:
        for name, shape in self._shapes(len(segment)).items():
            value: Array | None = getattr(segment, name)
            if value is None or value.shape != shape:
                found = None if value is None else value.shape
                raise ValueError(f"segment.{name} must have shape {shape}; got {found}")
        if segment.obs.dtype != self._env.obs_dtype:
            # Casting would truncate floats to bytes without a word.
            raise ValueError(f"segment.obs must be {self._env.obs_dtype}; got {segment.obs.dtype}")

    def _check_steps(self, segment: Segment) -> None:
        steps = segment.timestep
        if not len(steps):
            raise ValueError("a segment holds at least one transition; got none")
        if steps[0] < 0 or (np.diff(steps) != 1).any():
            raise ValueError(f"segment.timestep must count up by one from >= 0; got {steps}")

    def _check_finite(self, segment: Segment) -> None:
        quantities: dict[str, Array | None] = {
            "reward": segment.reward,
            "observation": segment.obs,
            "action": segment.action,
            "root_value": segment.root_value,
            "pred_value": segment.pred_value,
            "policy weights": segment.weights,
            "candidates": segment.candidates if self._candidate_dim else None,
        }
        for name, value in quantities.items():
            if value is None or value.dtype.kind != "f":
                continue
            finite = np.isfinite(value)
            if not finite.all():
                step = int(segment.timestep[0]) + int(np.argwhere(~finite)[0][0])
                where = f"stream {segment.stream_id}, episode {segment.episode_id}, step {step}"
                raise NonFiniteError(name, where)
