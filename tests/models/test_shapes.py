"""Parameter counts, initial outputs and sizes of the models."""

import pytest
import torch

from zero_tune.policies import build_model, seeded_model
from zero_tune.presets import resolve
from zero_tune.types import ActionSpec, EnvSpec, History

WIDE = {"reward_support_range": (-300, 301, 1), "value_support_range": (-300, 301, 1)}


def count(*modules):
    return sum(p.numel() for m in modules for p in m.parameters())


def atari(side, size=6):
    return EnvSpec("x", (1, side, side), "uint8", ActionSpec("discrete", size), family="atari")


def vector(width=4, size=2):
    return EnvSpec("x", (width,), "float32", ActionSpec("discrete", size))


def made(env, policy_type="muzero", model=None, **policy):
    data = {"policy": {"type": policy_type, **policy, "model": {**WIDE, **(model or {})}}}
    config, _ = resolve(data, env)
    return seeded_model(config.policy, env, 0)


def root_history(model, env, batch=3, stack=1):
    shape = (batch, model.history_length, env.obs_shape[0] * stack, *env.obs_shape[1:])
    if env.obs_dtype == "uint8":
        obs = torch.randint(0, 255, shape, dtype=torch.uint8)
    else:
        obs = torch.randn(shape)
    action = torch.zeros(batch, model.history_length, env.action.dim, dtype=torch.int32)
    return History(obs, action, torch.ones(batch, dtype=torch.int64), torch.zeros(batch).long())


@pytest.mark.parametrize(
    "side, ssl, total, representation, dynamics, prediction",
    [
        (64, False, 645_800, 315_712, 168_201, 161_887),
        (64, True, 7_997_608, 315_712, 168_201, 161_887),
        (96, False, 602_792, 315_712, 153_865, 133_215),
        (96, True, 6_119_592, 315_712, 153_865, 133_215),
    ],
)
def test_convolutional_muzero_has_the_published_parameter_counts(
    side, ssl, total, representation, dynamics, prediction
):
    model = made(
        atari(side),
        model={"self_supervised_learning_loss": ssl},
        ssl_loss_weight=2.0 if ssl else 0.0,
    )
    assert count(model) == total
    assert count(model.representation) == representation
    assert count(model.dynamics, model.reward_stem, model.reward_head) == dynamics
    assert count(model.prediction) == prediction


@pytest.mark.parametrize("side, total", [(64, 11_132_072), (96, 8_350_888)])
def test_efficientzero_has_the_published_parameter_count(side, total):
    assert count(made(atari(side), "efficientzero")) == total


def test_vector_muzero_has_the_published_parameter_count():
    small = {"fc_hidden": 32, "self_supervised_learning_loss": False}
    model = made(
        vector(), model={**small, "res_connection_in_dynamics": False}, ssl_loss_weight=0.0
    )
    assert count(model) == 137_300
    assert count(model.dynamics, model.reward_stem, model.reward_head) == 57_817


@pytest.mark.parametrize("kind", ["muzero", "efficientzero", "muzero_rnn_full_obs", "unizero"])
def test_a_fresh_model_predicts_zero_and_a_uniform_policy_from_distinct_latents(kind):
    env = vector()
    model = made(env, kind).eval()
    with torch.no_grad():
        root = model.initial_inference(root_history(model, env))
    assert torch.allclose(root.value, torch.zeros(3), atol=1e-4)
    assert torch.allclose(root.policy, torch.zeros_like(root.policy), atol=1e-6)
    if "latent" in root.state:
        latent = root.state["latent"]
        assert float((latent[0] - latent[1]).abs().max()) > 1e-2


@pytest.mark.parametrize("size", [2, 100])
def test_an_untrained_policy_is_broad(size):
    env = vector(size=size)
    model = made(env).eval()
    with torch.no_grad():
        policy = model.initial_inference(root_history(model, env, 64)).policy
    entropy = torch.distributions.Categorical(logits=policy).entropy()
    assert float(entropy.min()) >= 0.95 * float(torch.tensor(float(size)).log())


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((3, 8, 8), "uint8"),
        ((1, 84, 84), "uint8"),
        ((1, 7, 7), "float32"),
        ((3, 33, 51), "uint8"),
        ((4, 64, 64), "uint8"),
        ((3, 96, 96), "uint8"),
    ],
)
@pytest.mark.parametrize("downsample", [False, True])
def test_any_image_size_builds(shape, dtype, downsample):
    if downsample and max(shape[1:]) < 32:
        return
    env = EnvSpec("x", shape, dtype, ActionSpec("discrete", 3), family="image")
    model = made(env, model={"downsample": downsample, "num_channels": 4, **{}})
    model.eval()
    with torch.no_grad():
        root = model.initial_inference(root_history(model, env, 2))
        step = model.recurrent_inference(root.state, torch.zeros(2, 1, dtype=torch.int64))
    assert step.policy.shape == (2, 3) and step.value.shape == (2,)


def test_uint8_is_scaled_once_and_floats_are_left_alone():
    shape = (1, 8, 8)
    model = {"num_channels": 4, "downsample": False, "frame_stack_num": 1}
    byte = EnvSpec("x", shape, "uint8", ActionSpec("discrete", 3), family="image")
    real = EnvSpec("x", shape, "float32", ActionSpec("discrete", 3), family="image")
    one, two = made(byte, model=model).eval(), made(real, model=model).eval()
    history = root_history(one, byte, 2)
    with torch.no_grad():
        a = one.initial_inference(history).state["latent"]
        b = two.initial_inference(history._replace(obs=history.obs.float() / 255)).state["latent"]
    assert torch.allclose(a, b)


def test_weights_depend_on_the_seed_alone_and_leave_the_global_generator_alone():
    env = vector()
    config, _ = resolve({"policy": {"type": "muzero"}}, env)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = seeded_model(config.policy, env, 5)
    assert torch.equal(before, torch.get_rng_state())
    build_model(config.policy, env)
    second = seeded_model(config.policy, env, 5)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
