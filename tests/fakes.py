"""Small gymnasium environments that expose one fault each."""

import gymnasium as gym
import numpy as np


class ConstEnv(gym.Env):
    """Vector observation of size 4 holding the step number; reward 1; ends after n steps."""

    def __init__(self, n=6, end="terminated"):
        self.n, self.end = n, end
        self.observation_space = gym.spaces.Box(-1e6, 1e6, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        over = self.t >= self.n and self.end != "never"
        return (
            self._obs(),
            1.0,
            over and self.end == "terminated",
            over and self.end == "truncated",
            {},
        )

    def _obs(self):
        return np.array([self.t, 0, 0, 1], np.float32)


class CodeEnv(ConstEnv):
    """Observation (id, episode, t, 0); raises on any action but its id where ``strict``."""

    made = 0

    def __init__(self, n=37, id=None, strict=False, lengths=None):
        super().__init__(n)
        self.id = CodeEnv.made if id is None else id
        if lengths is not None:
            self.n = lengths[self.id % len(lengths)]
        CodeEnv.made += 1
        self.strict, self.episode = strict, -1
        self.action_space = gym.spaces.Discrete(8)

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return super().reset(seed=seed)

    def step(self, action):
        if self.strict and action != self.id:
            raise AssertionError(f"env {self.id} got action {action}")
        return super().step(action)

    def _obs(self):
        return np.array([self.id, self.episode, self.t, 0], np.float32)


class MaskEnv(ConstEnv):
    """A actions, of which a changing set is legal; stepping an illegal one raises."""

    def __init__(self, A=4, n=12, through="info"):
        super().__init__(n)
        self.A, self.through = A, through
        self.action_space = gym.spaces.Discrete(A)
        if through == "obs":
            self.observation_space = gym.spaces.Dict(
                {"observation": self.observation_space, "action_mask": gym.spaces.MultiBinary(A)}
            )

    def reset(self, *, seed=None, options=None):
        gym.Env.reset(self, seed=seed)
        self.t = 0
        return self._answer()

    def step(self, action):
        assert self.mask[action], f"illegal action {action}"
        _, reward, terminated, truncated, _ = ConstEnv.step(self, action)
        obs, info = self._answer()
        return obs, reward, terminated, truncated, info

    def _answer(self):
        count = 1 + self.t % self.A
        self.mask = np.zeros(self.A, np.int8)
        self.mask[self.np_random.choice(self.A, count, replace=False)] = 1
        obs = self._obs()
        if self.through == "obs":
            return {"observation": obs, "action_mask": self.mask}, {}
        return obs, {"action_mask": self.mask}


class ImgEnv(gym.Env):
    """Images of any shape and layout."""

    def __init__(self, shape=(8, 8, 3), dtype="uint8", n=5):
        high = 255 if dtype == "uint8" else 1.0
        self.observation_space = gym.spaces.Box(0, high, shape, np.dtype(dtype).type)
        self.action_space = gym.spaces.Discrete(3)
        self.n = n

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 0.0, self.t == self.n, False, {}


class Shifted(ConstEnv):
    """A Discrete action space that starts elsewhere, and raises outside it."""

    def __init__(self, n=3, start=5):
        super().__init__(6)
        self.action_space = gym.spaces.Discrete(n, start=start)
        self.observation_space = gym.spaces.Discrete(19, start=2)
        self.seen = []

    def step(self, action):
        assert self.action_space.contains(action), action
        self.seen.append(int(action))
        return super().step(action)

    def _obs(self):
        return 2 + self.t


class UnevenBox(ConstEnv):
    """Two continuous actions with uneven bounds; asserts that each action is inside."""

    def __init__(self, low=(-2, 0), high=(2, 10)):
        super().__init__(10)
        self.action_space = gym.spaces.Box(np.float32(low), np.float32(high), dtype=np.float32)

    def step(self, action):
        assert self.action_space.contains(action), action
        assert action.shape == (2,) and action.dtype == np.float32
        return super().step(action)


class Lives(ConstEnv):
    """Three lives of 4 steps each; a time limit may cut it in the middle of the second."""

    def __init__(self, cut=None):
        super().__init__(12)
        self.cut = cut

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {"lives": 3}

    def step(self, action):
        obs, reward, over, _, _ = super().step(action)
        truncated = self.cut is not None and self.t == self.cut
        return obs, reward, over, truncated, {"lives": 3 - self.t // 4}


class BadNumbers(ConstEnv):
    """A NaN reward or an infinite observation at step 3."""

    def __init__(self, what="reward"):
        super().__init__(20)
        self.what = what

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.t == 3 and self.what == "reward":
            reward = float("nan")
        if self.t == 3 and self.what == "observation":
            obs = obs + np.inf
        return obs, reward, *rest
