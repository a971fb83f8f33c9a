import dataclasses
import json
from pathlib import Path

from zero_tune.config import PolicyConfig
from zero_tune.ops.schedules import exploration_epsilon, linear, lr_factor, visit_temperature

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "action_distribution.json").read_text())


def policy(**values):
    return dataclasses.replace(PolicyConfig(), **values)


def test_temperature_equals_the_golden_schedule():
    for row in GOLDEN["schedule"]:
        made = policy(
            manual_temperature_decay=row["manual"],
            fixed_temperature_value=row["fixed"],
            threshold_training_steps_for_final_temperature=row["threshold"],
        )
        assert visit_temperature(made, row["trained"]) == row["T"]


def test_epsilon_is_off_by_default_and_falls_linearly_or_exponentially():
    assert exploration_epsilon(policy(), 0) == 0.0
    on = policy(eps_greedy_exploration_in_collect=True, eps_decay=100)
    assert exploration_epsilon(on, 50) == 1.0 - 0.95 * 0.5
    assert exploration_epsilon(on, 10_000) == 0.05
    slow = dataclasses.replace(on, eps_type="exp")
    assert 0.05 < exploration_epsilon(slow, 100) < 0.5


def test_learning_rate_factors():
    steps = policy(piecewise_decay_lr_scheduler=True, threshold_training_steps_for_final_lr=100)
    assert [lr_factor(steps, i) for i in (0, 49, 50, 99, 100)] == [1.0, 1.0, 0.1, 0.1, 0.01]
    cosine = policy(cos_lr_scheduler=True, lr_total_steps=100)
    assert lr_factor(cosine, 0) == 1.0 and abs(lr_factor(cosine, 100)) < 1e-12
    warm = policy(lr_warmup_steps=4)
    assert [lr_factor(warm, i) for i in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert linear(1.0, 0.0, 25, 100) == 0.75 and linear(1.0, 0.0, 500, 100) == 0.0
