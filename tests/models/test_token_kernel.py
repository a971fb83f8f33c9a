"""The compiled step of narrow token models computes what the model in torch does."""

import numpy as np
import pytest
import torch

from tests.models.test_inference import a_history, actions, shaken
from tests.models.test_token_model import made
from zero_tune.models.inference import InferenceModel
from zero_tune.models.token_kernel import KernelStore
from zero_tune.models.token_store import TreeStore
from zero_tune.policies import seeded_model

CASES = [
    ("unizero", "vector", {"policy_logits_soft_clip": 2.0, "latent_norm": "layernorm"}),
    ("unizero", "vector", {"rotary_emb": False, "latent_norm": "simnorm"}),
    ("unizero", "image", {}),
    ("sampled_unizero", "vector", {"num_layers": 3, "num_heads": 2}),
    ("sampled_unizero", "continuous", {"rotary_emb": False}),
]


def grow_both(fast, exact, env, history, nodes, rng):
    """Both models' outputs at each node of one random tree, deep enough to leave the window."""
    double = history._replace(obs=history.obs.double())
    if history.action.is_floating_point():
        double = double._replace(action=history.action.double())
    store = fast.node_store(fast.initial_inference(history), nodes)
    assert type(store) is KernelStore
    with torch.no_grad():
        truth = exact.node_store(exact.initial_inference(double), nodes)
        assert type(truth) is TreeStore
        batch = len(history.length)
        for node in range(1, nodes + 1):
            parent = rng.integers(max(0, node - 3), node, batch).astype(np.int32)
            action = actions(env, rng, (batch,))
            own = action.astype(np.float64) if action.dtype.kind == "f" else action
            yield store.expand(node, parent, action), truth.expand(node, parent, own)


@pytest.mark.parametrize("name, kind, options", CASES)
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_every_node_of_a_tree_equals_the_model_in_float64(name, kind, options, batch):
    model, config, env = made(name, kind, **options)
    fast = InferenceModel(model)
    rng = np.random.default_rng(batch)
    for version in (0, 1):  # the second weights replace the first ones in a kernel already made
        model = shaken(seeded_model(config.policy, env, version), version)
        fast.load(model.state_dict(), version)
        history = a_history(model, env, config, batch, version)
        for ours, theirs in grow_both(fast, model.double(), env, history, 14, rng):
            for field in ("reward", "policy", "value"):
                a, b = getattr(ours, field).double(), getattr(theirs, field)
                assert torch.allclose(a, b, rtol=5e-5, atol=5e-5), field


def test_a_row_does_not_depend_on_its_batch():
    model, config, env = made()
    fast = InferenceModel(model)
    history = a_history(model, env, config, 6)
    action = actions(env, np.random.default_rng(0), (6,))
    together = fast.node_store(fast.initial_inference(history), 1)
    # one root pass for all: torch's own products may differ with their number of rows
    root = fast.initial_inference(history)
    out = together.expand(1, np.zeros(6, np.int32), action)
    for row in range(6):
        lone = root._replace(state={k: v[row : row + 1] for k, v in root.state.items()})
        alone = fast.node_store(lone, 1).expand(1, np.zeros(1, np.int32), action[row : row + 1])
        assert torch.equal(alone.value[0], out.value[row])
        assert torch.equal(alone.policy[0], out.policy[row])


def test_a_wide_model_or_another_precision_stays_in_torch():
    for width, dtype in ((256, "float32"), (16, "bfloat16")):
        model, config, env = made(embed_dim=width)
        fast = InferenceModel(model, dtype=dtype)
        root = fast.initial_inference(a_history(model, env, config, 2))
        assert type(fast.node_store(root, 2)) is TreeStore
