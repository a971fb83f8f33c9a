"""Linked-row replay; knows no model."""

from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.replay.windows import HistoryArrays, Sample, StateFields

__all__ = ["HistoryArrays", "ReplayBuffer", "Sample", "StateFields"]
