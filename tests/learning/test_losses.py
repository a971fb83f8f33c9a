"""Loss terms by hand."""

import dataclasses
import math

import numpy as np
import torch

from tests.models.test_latent_models import a_batch, made
from zero_tune.learning.losses import EntropyBonus, PolicyLoss, build_losses, consistency_loss
from zero_tune.types import ActionSpec, EnvSpec, PolicyTarget, UnrollOutput


def output_like(batch, policy):
    size, steps = batch.action.shape[:2]
    zeros = torch.zeros(size, steps + 1, 21)
    return UnrollOutput(policy, zeros, zeros[:, 1:], zeros[..., :1])


def setting(**policy):
    _, config, env = made("muzero", **policy)
    return a_batch(config, env, steps=3), config, env


def with_targets(batch, **changes):
    return dataclasses.replace(batch, targets=dataclasses.replace(batch.targets, **changes))


def one_hot_target(batch):
    weights = torch.zeros_like(batch.targets.policy.weights)
    weights[..., 0] = 1.0
    return with_targets(batch, policy=PolicyTarget(None, weights))


def test_a_uniform_policy_and_a_one_hot_target_cost_log_a_at_each_of_the_k_plus_one_steps():
    batch, config, env = setting()
    batch = one_hot_target(batch)
    output = output_like(batch, torch.zeros(3, 4, 2))
    for kind in ("cross_entropy", "kl"):
        policy = dataclasses.replace(config.policy, policy_loss_type=kind)
        loss = PolicyLoss(policy, env)(output, batch)
        assert torch.allclose(loss, torch.full((3,), 4 * math.log(2)))


def test_kl_is_cross_entropy_minus_the_targets_entropy():
    batch, config, env = setting()
    output = output_like(batch, torch.randn(3, 4, 2))
    ce = PolicyLoss(config.policy, env)(output, batch)
    kl_policy = dataclasses.replace(config.policy, policy_loss_type="kl")
    kl = PolicyLoss(kl_policy, env)(output, batch)
    assert torch.allclose(ce - kl, torch.full((3,), 4 * math.log(2)), atol=1e-5)


def test_masked_steps_cost_nothing_whatever_they_hold():
    batch, config, env = setting()
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(3, -1)
    batch = with_targets(one_hot_target(batch), policy_mask=mask)
    logits = torch.zeros(3, 4, 2)
    plain = PolicyLoss(config.policy, env)(output_like(batch, logits), batch)
    logits[:, 2:] = 37.0 * torch.randn(3, 2, 2)
    assert torch.equal(plain, PolicyLoss(config.policy, env)(output_like(batch, logits), batch))


def test_label_smoothing_leaves_empty_rows_empty_and_illegal_actions_at_zero():
    batch, config, env = setting(policy_label_smoothing=0.2)
    weights = torch.zeros(3, 4, 2)
    weights[:, :2, 0] = 1.0
    legal = torch.tensor([True, False]).expand(3, 4, 2)
    batch = with_targets(batch, policy=PolicyTarget(None, weights), legal=legal)
    smoothed = PolicyLoss(config.policy, env)._smoothed(weights, batch)
    assert torch.equal(smoothed[:, 2:], torch.zeros(3, 2, 2))
    assert torch.equal(smoothed[..., 1], torch.zeros(3, 4))
    assert torch.allclose(smoothed[:, :2, 0], torch.ones(3, 2))


def test_sampled_slots_are_scored_by_their_own_actions():
    batch, config, _ = setting()
    env = EnvSpec("x", (4,), "float32", ActionSpec("discrete", 200))
    actions = torch.tensor([150, 199]).view(1, 1, 2, 1).expand(3, 4, 2, 1)
    weights = torch.tensor([0.25, 0.75]).expand(3, 4, 2)
    batch = with_targets(batch, policy=PolicyTarget(actions, weights))
    logits = torch.randn(3, 4, 200)
    log_prob = torch.log_softmax(logits, -1)
    want = -(0.25 * log_prob[..., 150] + 0.75 * log_prob[..., 199]).sum(1)
    assert torch.allclose(PolicyLoss(config.policy, env)(output_like(batch, logits), batch), want)


def test_continuous_slots_use_the_squashed_density_and_stay_finite_at_the_bounds():
    batch, config, _ = setting()
    env = EnvSpec("x", (4,), "float32", ActionSpec("continuous", 2))
    actions = torch.tensor([[1.0, -1.0], [0.3, 0.1]]).expand(3, 4, 2, 2)
    batch = with_targets(batch, policy=PolicyTarget(actions, torch.full((3, 4, 2), 0.5)))
    params = torch.cat([torch.zeros(3, 4, 2), torch.ones(3, 4, 2)], -1).requires_grad_()
    loss = PolicyLoss(config.policy, env)(output_like(batch, params), batch)
    loss.sum().backward()
    assert torch.isfinite(loss).all() and torch.isfinite(params.grad).all()


def test_the_entropy_bonus_sums_every_unmasked_step():
    batch, _, env = setting()
    output = output_like(batch, torch.zeros(3, 4, 2))
    assert torch.allclose(EntropyBonus(env)(output, batch), torch.full((3,), -4 * math.log(2)))
    half = with_targets(batch, policy_mask=torch.tensor([[1.0, 0, 0, 1]]).expand(3, -1))
    assert torch.allclose(EntropyBonus(env)(output, half), torch.full((3,), -2 * math.log(2)))


def test_consistency_is_minus_the_cosine_where_an_observation_was_seen():
    batch, _, _ = setting()
    unit = torch.nn.functional.normalize(torch.randn(3, 3, 5), dim=-1)
    output = output_like(batch, torch.zeros(3, 4, 2))._replace(
        extras={"ssl_online": unit, "ssl_target": unit}
    )
    seen = torch.tensor([[1.0, 1, 1, 0]]).expand(3, -1)
    loss = consistency_loss(output, with_targets(batch, state_mask=seen))
    assert torch.allclose(loss, torch.full((3,), -2.0))


def test_every_term_of_every_row_can_be_built():
    from zero_tune.policies import POLICIES, loss_weights

    for name in POLICIES:
        model, config, env = made(name)
        losses = build_losses(config.policy, env, model, loss_weights(config.policy))
        assert {"policy", "value", "reward"} <= set(losses)
        assert all(np.isfinite(weight) for _, weight in losses.values())
