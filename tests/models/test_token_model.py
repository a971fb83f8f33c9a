"""UniZero's model: cached equals uncached, for any tree."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.rows import config_for
from tests.models.test_inference import a_history, actions, shaken
from tests.models.test_latent_models import a_batch
from zero_tune.parsing import merge
from zero_tune.policies import seeded_model
from zero_tune.presets import resolve
from zero_tune.types import History


def made(name="unizero", kind="vector", **model):
    data = merge(config_for(name, kind), {"policy": {"model": {"embed_dim": 16, **model}}})
    config, env = resolve(data)
    return shaken(seeded_model(config.policy, env, 0)), config, env


def grown(model, env, history, nodes, seed=0, chain=False):
    """A random tree: (parents [nodes], actions [nodes, B], outputs)."""
    rng = np.random.default_rng(seed)
    batch = history.obs.shape[0]
    with torch.no_grad():
        root = model.initial_inference(history)
        store = model.node_store(root, nodes)
        parents, taken, out = [], [], []
        for node in range(1, nodes + 1):
            parent = node - 1 if chain else rng.integers(0, node)
            action = actions(env, rng, (batch,))
            parents.append(int(parent))
            taken.append(action)
            out.append(store.expand(node, np.full(batch, parent, np.int32), action))
    return root, parents, taken, out


def path_to(parents, node):
    path = []
    while node:
        path.append(node)
        node = parents[node - 1]
    return path[::-1]


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("name, kind", [("unizero", "vector"), ("sampled_unizero", "continuous")])
@pytest.mark.parametrize("chain", [False, True])
def test_a_node_of_a_tree_equals_the_same_path_alone(rotary, name, kind, chain):
    """Mixed root lengths; chains run well past the attention window of 2 * 3 tokens."""
    model, config, env = made(name, kind, rotary_emb=rotary)
    model = model.double()
    history = a_history(model, env, config, 4)
    history = history._replace(obs=history.obs.double(), length=torch.tensor([1, 2, 3, 4]))
    if history.action.is_floating_point():
        history = history._replace(action=history.action.double())
    nodes = 12
    _, parents, taken, out = grown(model, env, history, nodes, chain=chain)
    for node in range(1, nodes + 1):
        path = path_to(parents, node)
        with torch.no_grad():
            for row in range(4):
                lone = History(*(x[row : row + 1] for x in history))
                store = model.node_store(model.initial_inference(lone), len(path))
                for i, step in enumerate(path, 1):
                    action = taken[step - 1][row : row + 1]
                    last = store.expand(i, np.full(1, i - 1, np.int32), action)
                for field in ("value", "reward", "policy"):
                    a = torch.as_tensor(getattr(out[node - 1], field))[row]
                    b = torch.as_tensor(getattr(last, field))[0]
                    assert torch.allclose(a, b, rtol=0, atol=1e-9), (node, row, field)


def test_expanding_a_sibling_leaves_the_first_child_unharmed():
    model, config, env = made()
    history = a_history(model, env, config, 2)
    with torch.no_grad():
        store = model.node_store(model.initial_inference(history), 4)
        zero = np.zeros(2, np.int32)
        first = store.expand(1, zero, np.zeros((2, 1), np.int32))
        store.expand(2, zero, np.ones((2, 1), np.int32))
        again = store.expand(3, zero, np.zeros((2, 1), np.int32))
    assert torch.allclose(torch.as_tensor(first.value), torch.as_tensor(again.value), atol=1e-6)


def test_a_new_episode_forgets_and_other_rows_do_not_matter():
    model, config, env = made()
    history = a_history(model, env, config, 3)._replace(length=torch.tensor([1, 4, 2]))
    with torch.no_grad():
        together = model.initial_inference(history)
        for row in range(3):
            valid = int(history.length[row])
            lone = History(
                history.obs[row : row + 1],
                history.action[row : row + 1],
                history.length[row : row + 1],
                history.timestep[row : row + 1],
            )
            alone = model.initial_inference(lone)
            assert torch.allclose(alone.value[0], together.value[row], atol=1e-5), valid


def test_two_calls_in_eval_mode_give_equal_bits_and_dropout_is_on_in_training_only():
    model, config, env = made(dropout=0.5)
    history = a_history(model, env, config, 3)
    with torch.no_grad():
        a, b = model.initial_inference(history), model.initial_inference(history)
        assert torch.equal(a.value, b.value)
        batch = a_batch(config, env, steps=3)
        model.train()
        assert not torch.equal(model.unroll(batch).value_logits, model.unroll(batch).value_logits)


def test_latents_of_different_observations_differ_and_predicted_ones_depend_on_the_action():
    data = config_for("unizero", "vector")
    config, env = resolve(data)
    model = seeded_model(config.policy, env, 0).eval()
    with torch.no_grad():
        latent = model.encode(torch.randn(32, 4))
        assert float(latent.std(0).mean()) > 0.1
        batch = a_batch(config, env, steps=3)
        other = dataclasses.replace(batch, action=1 - batch.action)
        a, b = (model.unroll(x).extras["next_latent"] for x in (batch, other))
    assert float((a - b).abs().max()) > 1e-4


def test_training_is_causal_and_uses_the_band():
    model, config, env = made()
    batch = a_batch(config, env, steps=5)
    later = batch.obs.clone()
    later[:, 3:] += 1.0
    with torch.no_grad():
        a = model.unroll(batch)
        b = model.unroll(dataclasses.replace(batch, obs=later))
    assert torch.allclose(a.value_logits[:, :3], b.value_logits[:, :3], atol=1e-5)
    assert torch.allclose(a.reward_logits[:, :3], b.reward_logits[:, :3], atol=1e-5)
    assert not torch.allclose(a.value_logits[:, 3], b.value_logits[:, 3])


def test_simnorm_latents_are_groups_that_sum_to_one():
    model, _, _ = made(latent_norm="simnorm")
    with torch.no_grad():
        latent = model.encode(torch.randn(5, 4))
    assert torch.allclose(latent.view(5, 2, 8).sum(-1), torch.ones(5, 2), atol=1e-5)
