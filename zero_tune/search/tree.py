"""The batched tree: a few arrays, and the one record through which compiled code reaches them.

Node 0 of every tree is the root and node k is the one simulation k made, so there is no allocator and
no free list. ``q`` and ``share`` are kept current by the backup, so that selection reads short
contiguous rows, follows no pointer and divides nothing.

A compiled function pays about 65 ns for each array it is handed, which for a dozen arrays is more than
one simulation of eight trees costs. So the arrays travel as addresses in one record (``RUN``); views of
them are made inside, free of charge. `Run` owns record and arrays together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from zero_tune.ops.jit import compiled
from zero_tune.types import Array

ROOT = np.int64(0)  # node number; typed, so that callees compile once

# node_f [B, N, 3] f32
VALUE_SUM = 0  # of all returns seen from the node, the network's own value first
REWARD = 1  # on entering the node
RAW_VALUE = 2  # the network's value
# node_i [B, N, 5] i32
VISITS = 0  # own evaluation included
PARENT = 1  # -1 at the root
SLOT = 2  # slot of the parent that leads here
CHANCE = 3  # 1: the node waits for a chance code
NUM_VISITED = 4  # slots with visits
# edge_f [B, N, 4, K] f32
PRIOR = 0  # probability; -1 marks a slot that cannot be chosen
Q = 1  # reward + discount * child value from the view of the node's own mover; 0 while unvisited
SHARE = 2  # prior / (1 + edge visits); -inf where PRIOR is -1
LOGIT = 3  # prior logit; -inf where PRIOR is -1
# edge_i [B, N, 2, K] i32
EDGE_VISITS = 0
CHILD = 1  # -1: not expanded
# limits [B, 2] f32
LOW, HIGH = 0, 1  # least and largest Q seen in the tree

PARENT_MEAN, MINIMUM, ZERO = 0, 1, 2  # RUN.unvisited_q
UNVISITED_Q = {"parent_mean": PARENT_MEAN, "min": MINIMUM, "zero": ZERO}
ENUMERATED, DISCRETE, CONTINUOUS = 0, 1, 2  # RUN.candidate_kind

_ADDRESSES = (
    "node_f",
    "node_i",
    "edge_f",
    "edge_i",
    "q_sums",
    "limits",
    "candidates",
    "scratch",
    "table",
    "rng",
    "to_play",
    "legal",
    "gumbel",
    "noise",
    "draws",
    "parent",
    "action",
)

#: All that the kernels of one search read and write, but for the network's outputs.
RUN = np.dtype(
    [(name, np.uint64) for name in _ADDRESSES]
    + [
        ("rows", np.int64),  # B
        ("nodes", np.int64),  # N
        ("width", np.int64),  # K of the arrays: slots of the widest kind of node
        ("num_slots", np.int64),  # candidate slots of a decision node
        ("num_codes", np.int64),  # slots of a chance node
        ("num_actions", np.int64),  # A; 0 for continuous actions
        ("num_params", np.int64),  # P
        ("dim", np.int64),  # D of an action
        ("candidate_kind", np.int64),
        ("broad", np.int64),  # root candidates drawn uniformly instead of from the policy
        ("num_draws", np.int64),  # > 0: every node samples with the given draws
        ("table_rows", np.int64),  # 0: PUCT; else the considered-visits table has so many
        ("unvisited_q", np.int64),
        ("own_visit", np.int64),  # 1: a node's own visit counts in the exploration term
        ("node_range", np.bool_),  # normalise Q within the node instead of over the tree
        ("sample_code", np.bool_),  # draw the code instead of argmax p / (n + 1)
        ("uniform_prior", np.bool_),  # sampled candidates share the prior equally
        ("noise_given", np.bool_),  # root noise is handed in
        ("gumbel_given", np.bool_),  # root gumbel is handed in
        ("discount", np.float32),
        ("value_delta_max", np.float32),
        ("maxvisit_init", np.float32),
        ("value_scale", np.float32),
        ("noise_weight", np.float32),  # share of Dirichlet noise in the root's prior
        ("noise_alpha", np.float32),
        ("gumbel_scale", np.float32),
    ],
    align=True,
)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """The void pointer with this address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@compiled
def node_floats(run: Any) -> Any:
    """[B, N, 3] f32: VALUE_SUM, REWARD, RAW_VALUE."""
    return carray(_pointer(run.node_f), (run.rows, run.nodes, 3), np.float32)


@compiled
def node_ints(run: Any) -> Any:
    """[B, N, 5] i32: VISITS, PARENT, SLOT, CHANCE, NUM_VISITED."""
    return carray(_pointer(run.node_i), (run.rows, run.nodes, 5), np.int32)


@compiled
def edge_floats(run: Any) -> Any:
    """[B, N, 4, K] f32: PRIOR, Q, SHARE, LOGIT."""
    return carray(_pointer(run.edge_f), (run.rows, run.nodes, 4, run.width), np.float32)


@compiled
def edge_ints(run: Any) -> Any:
    """[B, N, 2, K] i32: EDGE_VISITS, CHILD."""
    return carray(_pointer(run.edge_i), (run.rows, run.nodes, 2, run.width), np.int32)


@compiled
def q_sums(run: Any) -> Any:
    """[B, N] f64: sum of the visited slots' Q; in double precision, because it is kept by differences."""
    return carray(_pointer(run.q_sums), (run.rows, run.nodes), np.float64)


@compiled
def limits(run: Any) -> Any:
    """[B, 2] f32: LOW, HIGH."""
    return carray(_pointer(run.limits), (run.rows, 2), np.float32)


@compiled
def discrete_candidates(run: Any) -> Any:
    """[B, N, K, 1] i32: the action of each slot."""
    return carray(_pointer(run.candidates), (run.rows, run.nodes, run.num_slots, 1), np.int32)


@compiled
def continuous_candidates(run: Any) -> Any:
    """[B, N, K, D] f32: the action of each slot."""
    shape = (run.rows, run.nodes, run.num_slots, run.dim)
    return carray(_pointer(run.candidates), shape, np.float32)


@compiled
def exploration(run: Any) -> Any:
    """[N + 1] f32: ``sqrt(n) c(n)`` by visits n (PUCT)."""
    return carray(_pointer(run.table), (run.nodes + 1,), np.float32)


@compiled
def considered(run: Any) -> Any:
    """[m + 1, S] i32: visit count due, by considered actions and simulation (Gumbel)."""
    return carray(_pointer(run.table), (run.table_rows, run.nodes - 1), np.int32)


@compiled
def generators(run: Any) -> Any:
    """[B] u64."""
    return carray(_pointer(run.rng), (run.rows,), np.uint64)


@compiled
def sign(run: Any, b: int) -> Any:
    """-1 where the mover changes with every action (two players), else 1."""
    to_play = carray(_pointer(run.to_play), (run.rows,), np.int8)
    return np.float32(-1.0) if to_play[b] > 0 else np.float32(1.0)


@compiled
def root_noise(run: Any) -> Any:
    """[B, K] f32: Dirichlet noise that was handed in."""
    return carray(_pointer(run.noise), (run.rows, run.num_slots), np.float32)


@compiled
def root_legal(run: Any) -> Any:
    """[B, A] bool."""
    return carray(_pointer(run.legal), (run.rows, run.num_actions), np.bool_)


@compiled
def scratch(run: Any) -> Any:
    """[2, A] f32, work space of one row."""
    return carray(_pointer(run.scratch), (2, run.num_actions), np.float32)


@compiled
def gumbels(run: Any) -> Any:
    """[B, K] f32: the root's noise (Gumbel)."""
    return carray(_pointer(run.gumbel), (run.rows, run.num_slots), np.float32)


@compiled
def given_draws(run: Any) -> Any:
    """[n] f32: deviates that every node samples with, or empty."""
    return carray(_pointer(run.draws), (run.num_draws,), np.float32)


@compiled
def leaf_parents(run: Any) -> Any:
    """[S, B] i32: row k - 1 is the parent of node k."""
    return carray(_pointer(run.parent), (run.nodes - 1, run.rows), np.int32)


@compiled
def leaf_actions(run: Any) -> Any:
    """[S, B, 1] i32: row k - 1 leads to node k."""
    return carray(_pointer(run.action), (run.nodes - 1, run.rows, 1), np.int32)


@compiled
def leaf_vectors(run: Any) -> Any:
    """[S, B, D] f32: row k - 1 leads to node k (continuous actions)."""
    return carray(_pointer(run.action), (run.nodes - 1, run.rows, run.dim), np.float32)


class Run:
    """The arrays of one shape of search and the record that points to them.

    It is kept from search to search; only the leaves are fresh each time, because a model may keep them.
    """

    def __init__(self, rules: Array, rows: int, simulations: int, width: int) -> None:
        """Allocate.

        Args:
            rules: [1] ``RUN`` with everything filled in that a configuration decides.
            width: K, slots of the widest kind of node.
        """
        nodes, slots = simulations + 1, int(rules["num_slots"][0])
        self.record = rules.copy()
        self.record["rows"], self.record["nodes"], self.record["width"] = rows, nodes, width
        self.arrays: dict[str, Array] = {}
        self.point(
            node_f=np.empty((rows, nodes, 3), np.float32),
            node_i=np.empty((rows, nodes, 5), np.int32),
            edge_f=np.empty((rows, nodes, 4, width), np.float32),
            edge_i=np.empty((rows, nodes, 2, width), np.int32),
            q_sums=np.empty((rows, nodes), np.float64),
            limits=np.empty((rows, 2), np.float32),
            rng=np.empty(rows, np.uint64),
            to_play=np.empty(rows, np.int8),
            gumbel=np.empty((rows, slots), np.float32),
            scratch=np.empty((2, int(rules["num_actions"][0])), np.float32),
        )
        kind, self._dim = int(rules["candidate_kind"][0]), int(rules["dim"][0])
        self._action_dtype: Any = np.float32 if kind == CONTINUOUS else np.int32
        codes = int(rules["num_codes"][0])
        self.fits_codes = kind != CONTINUOUS and 0 < codes <= width  # chance nodes can be searched
        if kind != ENUMERATED:
            self.point(candidates=np.empty((rows, nodes, slots, self._dim), self._action_dtype))

    def point(self, **arrays: Array) -> None:
        """Let the record point to these arrays, and keep them alive."""
        for name, array in arrays.items():
            self.arrays[name] = array
            self.record[name] = array.ctypes.data

    def fresh_leaves(self) -> None:
        """Make new arrays for each simulation's parent [S, B] i32 and action [S, B, D]."""
        rows, simulations = len(self.arrays["rng"]), self.arrays["node_f"].shape[1] - 1
        self.point(
            parent=np.empty((simulations, rows), np.int32),
            action=np.empty((simulations, rows, self._dim), self._action_dtype),
        )

    def root_candidates(self) -> Array | None:
        """A copy of the roots' sampled actions [B, K, D]; None where all actions are candidates."""
        candidates = self.arrays.get("candidates")
        return None if candidates is None else candidates[:, 0].copy()


@lru_cache(maxsize=32)
def exploration_table(num_visits: int, pb_c_base: float, pb_c_init: float) -> Array:
    """``sqrt(n) (ln((n + base + 1) / base) + init)`` for n = 0..num_visits, f32 (MuZero, appendix B)."""
    n = np.arange(num_visits + 1, dtype=np.float64)
    table = np.sqrt(n) * (np.log((n + pb_c_base + 1) / pb_c_base) + pb_c_init)
    return table.astype(np.float32)
