"""What tells the latent models apart."""

import dataclasses

import numpy as np
import torch
from torch import nn

from tests.contract.rows import config_for
from tests.models.test_inference import a_history, shaken
from zero_tune.models.afterstate import ChanceEncoder, join_branches
from zero_tune.parsing import merge
from zero_tune.policies import seeded_model
from zero_tune.presets import resolve
from zero_tune.types import PolicyTarget, SampleBatch, Targets


def made(name, kind="vector", **policy):
    config, env = resolve(merge(config_for(name, kind), {"policy": policy}))
    return shaken(seeded_model(config.policy, env, 0)), config, env


def a_batch(config, env, size=3, steps=7, seed=0):
    rng = np.random.default_rng(seed)
    shape = config.policy.model.observation_shape
    obs = torch.from_numpy(rng.normal(size=(size, steps + 1, *shape)).astype(np.float32))
    action = torch.from_numpy(rng.integers(0, env.action.size, (size, steps, 1)))
    ones = torch.ones(size, steps + 1)
    weights = torch.full((size, steps + 1, env.action.size), 1.0 / env.action.size)
    targets = Targets(
        ones[:, 1:], ones, PolicyTarget(None, weights), ones, ones, ones[:, 1:], ones, weights > 0
    )
    return SampleBatch(
        obs,
        action,
        torch.arange(steps + 1).expand(size, -1),
        None,
        torch.ones(size),
        np.arange(size),
        np.zeros(size),
        targets,
        0,
    )


def stepped(model, batch):
    """Policies, values and rewards of recurrent_inference along the batch's actions."""
    history = a_history_of(model, batch)
    root = model.initial_inference(history)
    state, out = root.state, [(root.policy, root.value, None)]
    for k in range(batch.action.shape[1]):
        step = model.recurrent_inference(state, batch.action[:, k])
        state = step.state
        out.append((step.policy, step.value, step.reward))
    return out


def a_history_of(model, batch):
    from zero_tune.types import History

    size, length = batch.obs.shape[0], model.history_length
    obs = batch.obs[:, :1].expand(-1, length, *[-1] * (batch.obs.dim() - 2))
    action = torch.zeros(size, length, 1, dtype=torch.int64)
    one = torch.ones(size, dtype=torch.int64)
    return History(obs, action, one, one - 1)


def test_unroll_equals_stepping():
    for name in ("muzero", "efficientzero", "muzero_context"):
        model, config, env = made(name)
        batch = a_batch(config, env, steps=4)
        with torch.no_grad():
            output, steps = model.unroll(batch), stepped(model, batch)
        for k, (policy, value, _) in enumerate(steps):
            assert torch.allclose(output.policy[:, k], policy, atol=1e-4), name
            decoded = model.value_support.decode(output.value_logits[:, k])
            assert torch.allclose(decoded, value, atol=1e-3, rtol=1e-4), name


def test_edge_rewards_are_differences_of_the_prefix_which_restarts_every_horizon():
    model, config, env = made("efficientzero", model={"lstm_horizon_len": 3})
    batch = a_batch(config, env)
    with torch.no_grad():
        output, steps = model.unroll(batch), stepped(model, batch)
    prefix = model.reward_support.decode(output.reward_logits)
    for k in range(7):
        before = 0.0 if k % 3 == 0 else prefix[:, k - 1]
        assert torch.allclose(steps[k + 1][2], prefix[:, k] - before, atol=1e-4)


def test_a_horizon_of_one_makes_every_prefix_a_plain_reward():
    model, config, env = made("efficientzero", model={"lstm_horizon_len": 1})
    batch = a_batch(config, env)
    with torch.no_grad():
        output, steps = model.unroll(batch), stepped(model, batch)
    rewards = model.reward_support.decode(output.reward_logits)
    for k in range(7):
        assert torch.allclose(steps[k + 1][2], rewards[:, k], atol=1e-4)


def test_context_length_one_is_plain_muzero():
    model, config, env = made("muzero_context", model={"context_length_init": 1})
    plain, _, _ = made(
        "muzero", ssl_loss_weight=0.0, model={"self_supervised_learning_loss": False}
    )
    plain.load_state_dict(model.state_dict())
    history = a_history(model, env, config, 4)
    with torch.no_grad():
        a, b = model.initial_inference(history), plain.initial_inference(history)
    assert torch.equal(a.value, b.value) and torch.equal(a.policy, b.policy)


def test_a_context_root_is_encoded_every_l_steps_and_unrolled_between():
    model, config, env = made("muzero_context", model={"context_length_init": 3})
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.normal(size=(9, 4)).astype(np.float32))
    taken = torch.from_numpy(rng.integers(0, 2, (9, 1)))
    latent = None
    with torch.no_grad():
        for t in range(9):
            rows = [max(0, t - 2 + i) for i in range(3)]
            history = a_history(model, env, config, 1)._replace(
                obs=frames[rows][None],
                action=taken[rows][None],
                length=torch.tensor([min(t + 1, 3)]),
                timestep=torch.tensor([t]),
            )
            if t % 3 == 0:
                latent = model.representation(frames[t][None])
            else:
                latent = model.dynamics(latent, taken[t - 1][None])
            assert torch.allclose(
                model.initial_inference(history).state["latent"], latent, atol=1e-5
            )


def test_the_recurrent_state_is_zero_every_l_steps_and_follows_the_real_steps_between():
    model, config, env = made("muzero_rnn_full_obs", model={"context_length_init": 3})
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.normal(size=(9, 4)).astype(np.float32))
    taken = torch.from_numpy(rng.integers(0, 2, (9, 1)))
    hidden = torch.zeros(1, model.hidden)
    with torch.no_grad():
        for t in range(9):
            rows = [max(0, t - 2 + i) for i in range(3)]
            history = a_history(model, env, config, 1)._replace(
                obs=frames[rows][None],
                action=taken[rows][None],
                length=torch.tensor([min(t + 1, 3)]),
                timestep=torch.tensor([t]),
            )
            if t % 3 == 0:
                hidden = torch.zeros(1, model.hidden)
            else:
                _, hidden = model.dynamics(
                    model.representation(frames[t - 1][None]), hidden, taken[t - 1][None]
                )
            assert torch.allclose(
                model.initial_inference(history).state["hidden"], hidden, atol=1e-5
            )


def test_a_window_is_trained_from_the_recurrent_state_that_acting_would_hold_there():
    model, config, env = made("muzero_rnn_full_obs", model={"context_length_init": 4})
    history = a_history(model, env, config, 6)
    batch = a_batch(config, env, size=6, steps=2)
    obs = torch.cat([history.obs[:, -1:], batch.obs[:, 1:]], 1)
    batch = dataclasses.replace(batch, obs=obs, history=history)
    output, root = model.unroll(batch), model.initial_inference(history)
    assert torch.allclose(output.policy[:, 0], root.policy, atol=1e-5)
    step = model.recurrent_inference(root.state, batch.action[:, 0])
    reward = model.reward_support.decode(output.reward_logits[:, 0])
    assert torch.allclose(reward, step.reward, atol=1e-4)
    # and what was seen before the window learns to be remembered
    remembered = ((history.timestep % 4) > 0) & (history.length > 1)
    assert remembered.any() and not remembered.all()
    seen = history.obs.clone().requires_grad_(True)
    moved = model.unroll(dataclasses.replace(batch, history=history._replace(obs=seen)))
    moved.reward_logits.pow(2).sum().backward()
    reached = seen.grad.flatten(1).abs().sum(1) > 0
    assert torch.equal(reached, remembered)


def test_content_before_the_episode_start_does_not_matter():
    for name in ("muzero_context", "muzero_rnn_full_obs", "unizero"):
        model, config, env = made(name)
        history = a_history(model, env, config, 4)
        noisy = history.obs.clone()
        for row in range(4):
            noisy[row, : history.obs.shape[1] - int(history.length[row])] = 1e3
        with torch.no_grad():
            a = model.initial_inference(history).value
            b = model.initial_inference(history._replace(obs=noisy)).value
        assert torch.allclose(a, b, atol=1e-4), name


def test_rows_of_both_kinds_in_one_call_equal_two_calls():
    model, config, env = made("stochastic_muzero")
    history = a_history(model, env, config, 4)
    with torch.no_grad():
        decisions = model.initial_inference(history).state
        action = torch.tensor([[0], [1], [1], [0]])
        chances = model.decide(decisions, action).state
        mixed = {
            "latent": torch.cat([decisions["latent"][:2], chances["latent"][2:]]),
            "is_chance": torch.tensor([False, False, True, True]),
        }
        action = torch.tensor([[0], [1], [3], [2]])  # codes may exceed the number of actions
        out = join_branches(mixed, action, model.decide, model.resolve)
        first = model.decide({k: v[:2] for k, v in mixed.items()}, action[:2])
        second = model.resolve({k: v[2:] for k, v in mixed.items()}, action[2:])
    assert torch.allclose(out.value, torch.cat([first.value, second.value]), atol=1e-5)
    assert torch.allclose(out.policy, torch.cat([first.policy, second.policy]), atol=1e-5)
    assert torch.equal(out.reward[:2], torch.zeros(2))
    assert out.is_chance.tolist() == [True, True, False, False]


def test_chance_codes_are_one_hot_forward_and_teach_the_encoder_backward():
    model, config, env = made("stochastic_muzero")
    batch = a_batch(config, env, steps=3)
    output = model.unroll(batch)
    code = output.extras["chance_onehot"]
    assert torch.equal(code.sum(-1), torch.ones(3, 3)) and set(code.unique().tolist()) == {0.0, 1.0}
    output.value_logits.pow(2).sum().backward()
    grad = [p.grad.abs().max() for p in model.chance_encoder.parameters()]
    assert max(grad) > 0.0


def test_every_chance_code_is_in_use_whatever_the_biases_start_at():
    torch.manual_seed(0)
    encoder = ChanceEncoder((4,), 4)
    with torch.no_grad():
        [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)][-1].bias[0] = 10.0
        code = encoder(torch.randn(64, 4), torch.randn(64, 4)).argmax(-1)
    assert set(code.tolist()) == {0, 1, 2, 3}


def test_a_new_recurrent_state_outlives_an_episode_of_a_few_steps():
    config, env = resolve(config_for("muzero_rnn_full_obs", "vector"))
    dynamics = seeded_model(config.policy, env, 0).dynamics.eval()
    first = torch.randn(
        16, dynamics.gru.hidden_size, generator=torch.Generator().manual_seed(0)
    ).tanh()
    marked, blank = first, torch.zeros_like(first)
    latent = torch.zeros(16, config.policy.model.latent_state_dim)
    action = torch.zeros(16, 1, dtype=torch.int64)
    with torch.no_grad():
        for _ in range(4):
            _, marked = dynamics(latent, marked, action)
            _, blank = dynamics(latent, blank, action)
    kept = (marked - blank).norm() / first.norm()
    assert kept > 0.4  # a GRU that starts at an open gate keeps about 0.06


def test_true_chance_labels_replace_the_encoder_where_they_are_known():
    env_data = config_for("stochastic_muzero", "masked")
    data = merge(
        env_data,
        {
            "policy": {
                "use_true_chance_label_in_chance_encoder": True,
                "model": {"chance_space_size": 6},
            }
        },
    )
    config, env = resolve(data)
    model = shaken(seeded_model(config.policy, env, 0))
    batch = dataclasses.replace(
        a_batch(config, env, steps=2), chance=torch.tensor([[1, -1], [4, 0], [5, 2]])
    )
    with torch.no_grad():
        code = model.unroll(batch).extras["chance_onehot"].argmax(-1)
    assert code[0, 0] == 1 and code[1].tolist() == [4, 0] and code[2].tolist() == [5, 2]


def test_halved_gradients_reach_the_representation_only_as_configured():
    totals = []
    for scale in (1.0, 0.5, 0.0):
        model, config, env = made("muzero", latent_grad_scale=scale)
        batch = a_batch(config, env, steps=2)
        model.unroll(batch).value_logits[:, 1:].pow(2).sum().backward()
        grads = [p.grad for p in model.representation.parameters() if p.grad is not None]
        totals.append(sum(float(g.abs().sum()) for g in grads))
    assert totals[0] > totals[1] > totals[2] == 0.0
