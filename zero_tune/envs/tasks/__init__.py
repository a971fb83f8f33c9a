"""Small environments with known optima, registered as ``zero_tune/<Name>-v0``."""

from __future__ import annotations

import gymnasium as gym

_TASKS = {
    "Catch": "catch:Catch",
    "BlindCatch": "catch:BlindCatch",
    "MemoryCue": "memory:MemoryCue",
    "ChanceMatch": "chance:ChanceMatch",
    "MiniGame2048": "game2048:MiniGame2048",
    "PointReach": "reach:PointReach",
    "TicTacToe": "tictactoe:TicTacToe",
}


def register_all() -> None:
    """Register every task with gymnasium; a second call changes nothing."""
    for name, target in _TASKS.items():
        env_id = f"zero_tune/{name}-v0"
        if env_id not in gym.registry:
            module, cls = target.split(":")
            gym.register(
                env_id, entry_point=f"zero_tune.envs.tasks.{module}:{cls}", disable_env_checker=True
            )
