"""Inference-only copies equal the models they were made from."""

import numpy as np
import pytest
import torch

from tests.contract.rows import config_for, rows
from zero_tune.errors import SnapshotMismatch
from zero_tune.models.inference import InferenceModel
from zero_tune.parsing import merge
from zero_tune.policies import seeded_model
from zero_tune.presets import resolve
from zero_tune.types import History

KINDS = [r for r in rows() if r[1] in ("vector", "continuous") or r[0] in ("muzero", "unizero")]


def shaken(model, seed=0):
    """Weights and batch statistics that are neither zero nor at their start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                noise = 0.1 * torch.randn(tensor.shape, generator=generator)
                tensor.add_(noise.abs() if "running_var" in name else noise)
    return model.eval()


def a_history(model, env, config, batch, seed=0):
    rng = np.random.default_rng(seed)
    length = model.history_length
    shape = config.policy.model.observation_shape
    obs = torch.from_numpy(rng.normal(size=(batch, length, *shape)).astype(np.float32))
    action = torch.from_numpy(actions(env, rng, (batch, length)))
    valid = torch.from_numpy(rng.integers(1, length + 1, batch))
    return History(obs, action, valid, valid - 1)


def actions(env, rng, shape):
    if env.action.kind == "discrete":
        return rng.integers(0, env.action.size, (*shape, 1)).astype(np.int32)
    return rng.uniform(-1, 1, (*shape, env.action.size)).astype(np.float32)


@pytest.mark.parametrize("norm", ["LN", "BN"])
@pytest.mark.parametrize("name, kind", KINDS, ids=[f"{a}-{b}" for a, b in KINDS])
def test_folded_and_traced_equals_eager_for_any_batch_size_and_after_new_weights(name, kind, norm):
    data = merge(config_for(name, kind), {"policy": {"model": {"norm_type": norm}}})
    config, env = resolve(data)
    model = seeded_model(config.policy, env, 0)
    fast = InferenceModel(model)
    for seed, batch in ((1, 2), (2, 5)):
        shaken(model, seed)
        fast.load({k: v.numpy() for k, v in model.state_dict().items()}, seed)
        history = a_history(model, env, config, batch, seed)
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            slow_root, root = model.initial_inference(history), fast.initial_inference(history)
            slow_store, store = model.node_store(slow_root, 3), fast.node_store(root, 3)
            assert torch.allclose(root.value, slow_root.value, rtol=1e-4, atol=1e-4)
            assert torch.allclose(root.policy, slow_root.policy, rtol=1e-4, atol=1e-4)
            for node, parent in ((1, 0), (2, 1), (3, 0)):
                action = actions(env, rng, (batch,))
                where = np.full(batch, parent, np.int32)
                slow, quick = (
                    slow_store.expand(node, where, action),
                    store.expand(node, where, action),
                )
                for field in ("reward", "value", "policy"):
                    a, b = getattr(slow, field), getattr(quick, field)
                    assert torch.allclose(
                        torch.as_tensor(a), torch.as_tensor(b), rtol=1e-3, atol=1e-4
                    )


def test_a_learner_left_in_train_mode_would_differ_under_batch_norm():
    data = merge(config_for("muzero", "vector"), {"policy": {"model": {"norm_type": "BN"}}})
    config, env = resolve(data)
    model = shaken(seeded_model(config.policy, env, 0))
    history = a_history(model, env, config, 4)
    with torch.no_grad():
        calm = model.initial_inference(history).value
        busy = model.train().initial_inference(history).value
    assert float((calm - busy).abs().max()) > 1e-3


def test_other_names_or_shapes_are_refused_by_name():
    config, env = resolve(config_for("muzero", "vector"))
    model = seeded_model(config.policy, env, 0)
    fast = InferenceModel(model)
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    first = next(iter(state))
    with pytest.raises(SnapshotMismatch, match=first):
        fast.load({k: v for k, v in state.items() if k != first})
    with pytest.raises(SnapshotMismatch, match="shape"):
        fast.load({**state, first: state[first][:1]})


def test_read_only_arrays_load_without_a_warning(recwarn):
    config, env = resolve(config_for("muzero", "vector"))
    model = seeded_model(config.policy, env, 0)
    fast = InferenceModel(model)
    state = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    for array in state.values():
        array.flags.writeable = False
    fast.load(state)
    assert not [w for w in recwarn if "writ" in str(w.message)]
