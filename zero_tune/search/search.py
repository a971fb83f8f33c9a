"""One search per root over any model, proposal and rule, with one network call per simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from zero_tune.config import PolicyConfig, need
from zero_tune.errors import ConfigError, EnvError, NonFiniteError
from zero_tune.interfaces import NodeStore
from zero_tune.ops.shapes import check_shape
from zero_tune.search.kernels import BAD_SHAPE, ERRORS, OK, step
from zero_tune.search.readout import empty_readout, explore_uniformly, read_out
from zero_tune.search.rules import considered_visits
from zero_tune.search.tree import (
    CONTINUOUS,
    DISCRETE,
    ENUMERATED,
    RUN,
    UNVISITED_Q,
    Run,
    exploration_table,
)
from zero_tune.types import Array, EnvSpec, PolicyTarget, RootOutput, SearchResult

_FLOAT32 = np.dtype(np.float32)
_NEVER: Array = np.empty(0, np.bool_)  # chance flags of a model without chance nodes
_KEPT_RUNS = 4  # shapes (rows, simulations) whose trees stay allocated


@dataclass(frozen=True)
class GivenDraws:
    """Random numbers handed in instead of drawn, for comparison with other implementations.

    Args:
        root_noise: [B, K] in place of the Dirichlet draw.
        root_gumbel: [B, K] in place of the Gumbel draw, scale included; used in evaluation too.
        node_draws: what every node samples its candidates with: [A] uniforms (discrete) or [K D]
            standard normals (continuous).
    """

    root_noise: Array | None = None
    root_gumbel: Array | None = None
    node_draws: Array | None = None


@dataclass(frozen=True)
class SearchSettings:
    """Root exploration and budgets of one search."""

    gumbel: bool  # the Gumbel rule instead of PUCT
    collect_simulations: int
    eval_simulations: int
    pb_c_base: float
    pb_c_init: float
    noise_weight: float
    num_broad: int  # root candidates drawn uniformly while exploring (continuous actions)
    max_considered: int
    gumbel_scale: float


_NOTHING_GIVEN = GivenDraws()


class TreeSearch:
    """Batched Monte Carlo tree search, an ``interfaces.Search``.

    The trees of the last few shapes are kept and reused; results are fresh arrays. One instance serves one
    thread.
    """

    def __init__(self, rules: Array, settings: SearchSettings) -> None:
        self.rules = rules  # [1] RUN with everything filled in that a configuration decides
        self.settings = settings
        self.num_slots = int(rules["num_slots"][0])
        actions, dim = int(rules["num_actions"][0]), int(rules["dim"][0])
        self._least_params = actions or 2 * dim
        self._draws_per_node = actions or self.num_slots * dim
        self.last_run: Run | None = None  # its trees are overwritten by the next run
        self._runs: dict[tuple[int, ...], Run] = {}

    def __getstate__(self) -> dict[str, Any]:
        """All but the trees, whose addresses hold in this process only; also what a copy is made of."""
        return self.__dict__ | {"last_run": None, "_runs": {}}

    def run(
        self,
        model: Any,
        root: RootOutput,
        legal: Array,
        to_play: Array,
        rng: Array,
        *,
        explore: bool,
        temperature: float = 1.0,
        epsilon: float = 0.0,
        num_simulations: int | None = None,
        given: GivenDraws | None = None,
    ) -> SearchResult:
        """Search from ``root``; see ``interfaces.Search``.

        Without ``explore`` the result is a function of the arguments: what is sampled is drawn from a
        copy of ``rng``, which stays as it is.

        Raises:
            EnvError: a row has no legal action.
            NonFiniteError: the model returned a number that is not finite.
        """
        simulations = num_simulations or self._default_simulations(explore)
        policy, value = as_float32(root.policy), as_float32(root.value)
        legal = np.ascontiguousarray(legal, np.bool_)
        check_shape("legal", legal, (len(value), int(self.rules["num_actions"][0])))
        run = self._plan(policy.shape, simulations)
        self._set_inputs(run, legal, to_play, rng, explore, given or _NOTHING_GIVEN)
        no_reward = np.zeros(len(value), np.float32)
        status = step(run.record, 0, no_reward, policy, value, _NEVER)
        if status != OK:
            raise _root_error(status, legal)
        self._simulate(model.node_store(root, simulations), run)
        out = empty_readout(len(value), self.num_slots)
        read_out(run.record, explore, float(temperature), *out)
        actions = run.root_candidates()
        if actions is None:
            action = out.slot[:, None].copy()
        else:
            action = actions[np.arange(len(value)), out.slot]
        if explore:
            if epsilon > 0.0:
                explore_uniformly(run.arrays["rng"], float(epsilon), legal, action)
            rng[:] = run.arrays["rng"]
        return SearchResult(
            action=action,
            target=PolicyTarget(actions, out.weights),
            value=out.value,
            visit_counts=out.visit_counts,
            root_value=value.copy(),
            entropy=out.entropy,
            root_policy=out.prior,
            q_values=out.q_values,
        )

    def _simulate(self, store: NodeStore, run: Run) -> None:
        """Expand the selected leaves one after another, selecting the next with each backup."""
        record, leaves = run.record, zip(run.arrays["parent"], run.arrays["action"], strict=True)
        for node, (parent, action) in enumerate(leaves, start=1):
            output = store.expand(node, parent, action)
            chance = _NEVER if output.is_chance is None else self._chance(output.is_chance, run)
            status = step(
                record,
                node,
                as_float32(output.reward),
                as_float32(output.policy),
                as_float32(output.value),
                chance,
            )
            if status != OK:
                raise _error(status, f"in simulation {node}")

    def _plan(self, policy_shape: tuple[int, ...], simulations: int) -> Run:
        """The run of this shape, kept or new, with fresh leaves."""
        rows, params = policy_shape
        if params < self._least_params:
            raise ValueError(
                f"policy has {params} parameters; this search needs {self._least_params}"
            )
        enumerated = self.rules["candidate_kind"][0] == ENUMERATED
        width = params if enumerated else self.num_slots
        shape = (rows, simulations, width)
        run = self._runs.pop(shape, None)
        if run is None:
            run = Run(self.rules, *shape)
            run.point(table=self._table(simulations))
            if self.settings.gumbel:
                run.record["table_rows"] = len(run.arrays["table"])
            while len(self._runs) >= _KEPT_RUNS:
                self._runs.pop(next(iter(self._runs)))
        self._runs[shape] = run  # the newest is last
        self.last_run = run
        run.record["num_params"] = params
        run.fresh_leaves()
        return run

    def _set_inputs(
        self,
        run: Run,
        legal: Array,
        to_play: Array,
        rng: Array,
        explore: bool,
        given: GivenDraws,
    ) -> None:
        """Fill in what differs from search to search."""
        settings, record = self.settings, run.record
        run.point(legal=legal)
        run.arrays["rng"][:] = rng
        run.arrays["to_play"][:] = to_play
        record["noise_weight"] = settings.noise_weight if explore else 0.0
        record["gumbel_scale"] = settings.gumbel_scale if explore else 0.0
        record["broad"] = settings.num_broad if explore else 0
        record["noise_given"] = given.root_noise is not None
        record["gumbel_given"] = given.root_gumbel is not None
        record["num_draws"] = 0
        if given.root_noise is not None:
            noise = np.ascontiguousarray(given.root_noise, np.float32)
            check_shape("root_noise", noise, (len(rng), self.num_slots))
            run.point(noise=noise)
        if given.root_gumbel is not None:
            run.arrays["gumbel"][:] = given.root_gumbel
        if given.node_draws is not None:
            draws = np.ascontiguousarray(given.node_draws, np.float32)
            check_shape("node_draws", draws, (self._draws_per_node,))
            run.point(draws=draws)
            record["num_draws"] = len(draws)

    def _default_simulations(self, explore: bool) -> int:
        settings = self.settings
        return settings.collect_simulations if explore else settings.eval_simulations

    def _table(self, simulations: int) -> Array:
        settings = self.settings
        if settings.gumbel:
            return considered_visits(min(settings.max_considered, self.num_slots), simulations)
        return exploration_table(simulations + 1, settings.pb_c_base, settings.pb_c_init)

    def _chance(self, flags: Any, run: Run) -> Array:
        if not run.fits_codes:
            slots = run.arrays["edge_f"].shape[3]
            raise ConfigError(
                "policy.model.chance_space_size",
                f"must be 1..{slots}, the slots of a node, for a model with chance nodes",
                int(self.rules["num_codes"][0]),
                "Search enumerated actions, with a policy head max(A, C) wide.",
            )
        if not isinstance(flags, np.ndarray):
            flags = flags.cpu().numpy()
        return np.ascontiguousarray(flags, np.bool_)


def as_float32(x: Any) -> Array:
    """A contiguous float32 array on the host; a view of a CPU tensor's memory where that is possible."""
    if not isinstance(x, np.ndarray):
        try:
            x = x.numpy()
        except (TypeError, RuntimeError):  # on another device, half precision, or requires grad
            x = x.detach().float().cpu().numpy()
    if x.dtype == _FLOAT32 and x.flags.c_contiguous:
        return x
    return np.ascontiguousarray(x, np.float32)


def _root_error(status: int, legal: Array) -> Exception:
    stuck = np.flatnonzero(~legal.any(axis=1))
    if legal.shape[1] and len(stuck):
        return EnvError(f"no legal action in row {stuck[0]} of {len(legal)}: nothing to search")
    return _error(status, "at the root")


def _error(status: int, where: str) -> Exception:
    if status == BAD_SHAPE:
        return ValueError(
            f"the model's outputs {where} do not fit the search's rows and policy width"
        )
    return NonFiniteError(ERRORS[status], where)


def build_search(policy: PolicyConfig, env: EnvSpec, *, proposal: str, rule: str) -> TreeSearch:
    """The search of a resolved configuration.

    Args:
        proposal: ``enumerate`` or ``sample``.
        rule: ``puct`` or ``gumbel``.

    Raises:
        ConfigError: an enumerating search of a continuous action space.
    """
    simulations = need(policy.num_simulations, "policy.num_simulations")
    slots = _num_slots(policy, env, proposal)
    discrete = env.action.kind == "discrete"
    rules = np.zeros(1, RUN)
    rules["num_slots"] = slots
    rules["num_codes"] = policy.model.chance_space_size or 0
    rules["num_actions"] = env.action.size if discrete else 0
    rules["dim"] = env.action.dim
    rules["candidate_kind"] = ENUMERATED
    if proposal == "sample":
        rules["candidate_kind"] = DISCRETE if discrete else CONTINUOUS
    rules["unvisited_q"] = UNVISITED_Q[policy.unvisited_q]
    rules["own_visit"] = policy.count_own_visit
    rules["node_range"] = policy.q_normalization == "node"
    rules["sample_code"] = policy.chance_selection == "sample"
    rules["uniform_prior"] = policy.sampled_prior == "uniform"
    rules["discount"] = need(policy.discount_factor, "policy.discount_factor")
    rules["value_delta_max"] = policy.value_delta_max
    rules["maxvisit_init"] = policy.maxvisit_init
    rules["value_scale"] = policy.value_scale
    rules["noise_alpha"] = policy.root_dirichlet_alpha
    broad = min(math.ceil(policy.root_noise_weight * slots), slots - 1)
    settings = SearchSettings(
        gumbel=rule == "gumbel",
        collect_simulations=policy.collect_num_simulations or simulations,
        eval_simulations=policy.eval_num_simulations or simulations,
        pb_c_base=float(policy.pb_c_base),
        pb_c_init=float(policy.pb_c_init),
        noise_weight=float(policy.root_noise_weight),
        num_broad=0 if discrete else broad,
        max_considered=policy.max_num_considered_actions,
        gumbel_scale=float(policy.gumbel_scale),
    )
    return TreeSearch(rules, settings)


def _num_slots(policy: PolicyConfig, env: EnvSpec, proposal: str) -> int:
    if proposal == "enumerate":
        if env.action.kind == "continuous":
            raise ConfigError(
                "policy.type",
                "enumerates actions, but the action space is continuous",
                policy.type,
                "Use a sampled policy type.",
            )
        return env.action.size
    slots = need(policy.num_of_sampled_actions, "policy.num_of_sampled_actions")
    return slots if env.action.kind == "continuous" else min(slots, env.action.size)
