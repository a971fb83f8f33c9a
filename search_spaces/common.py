"""Search spaces of settings that every policy type has."""

from ray import tune

#: Optimisation.
OPTIMIZER = {"learning_rate": tune.loguniform(1e-3, 1e-2)}

#: How much is learned from each env step.
REPLAY = {"td_steps": tune.choice([5, 10, 20]), "batch_size": tune.choice([64, 128])}

#: Settings that population-based training may change while a trial runs.
PBT_MUTATIONS = {"policy": {"learning_rate": tune.loguniform(3e-4, 1e-2)}}
