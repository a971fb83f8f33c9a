import torch

from zero_tune.ops.distributions import (
    categorical_entropy,
    gaussian_entropy,
    masked_log_softmax,
    squashed_gaussian_log_prob,
)


def test_the_squashed_density_integrates_to_one():
    mu, sigma = [0.3, -0.5], [0.7, 0.4]
    policy = torch.tensor([*mu, *sigma], dtype=torch.float64)
    edge = (torch.arange(801, dtype=torch.float64) + 0.5) / 801 * 2 - 1
    grid = torch.cartesian_prod(edge, edge)
    density = squashed_gaussian_log_prob(policy.expand(len(grid), 4), grid).exp()
    assert abs(float(density.mean() * 4) - 1.0) < 1e-3


def test_log_prob_and_gradient_are_finite_at_the_edge():
    policy = torch.tensor([[0.0, 0.0, 1.0, 1.0]], requires_grad=True)
    for action in ([1.0, -1.0], [1 - 1e-7, -1 + 1e-7]):
        log_prob = squashed_gaussian_log_prob(policy, torch.tensor([action]))
        assert torch.isfinite(log_prob).all()
        (grad,) = torch.autograd.grad(log_prob.sum(), policy)
        assert torch.isfinite(grad).all()


def test_entropies_by_hand():
    uniform = torch.full((4,), 0.25).log()
    assert torch.isclose(categorical_entropy(uniform), torch.tensor(4.0).log())
    assert torch.isfinite(categorical_entropy(torch.log_softmax(torch.tensor([0.0, -1e8]), -1)))
    unit = gaussian_entropy(torch.tensor([0.0, 1.0]))
    assert torch.isclose(unit, torch.tensor(1.4189385))


def test_illegal_entries_get_no_mass_and_an_empty_mask_no_nan():
    logits, legal = torch.tensor([[1.0, 5.0]]), torch.tensor([[True, False]])
    assert torch.allclose(masked_log_softmax(logits, legal).exp(), torch.tensor([[1.0, 0.0]]))
    assert torch.isfinite(masked_log_softmax(logits, legal & False)).all()
