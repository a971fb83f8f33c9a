"""UniZero's network on whole sequences, one token and one head at a time, in NumPy float64.

Nothing is kept between calls and nothing is shared with the package: weights come from the state dict by
name. Slow on purpose; the cached search, the root pass and the training pass must all agree with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zero_tune.types import Array

EPS = 1e-5
erf = np.vectorize(math.erf, otypes=[np.float64])


def affine(x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = weight @ x
    return y if bias is None else y + bias


def standardise(x: Array) -> Array:
    return (x - x.mean()) / np.sqrt(x.var() + EPS)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def turned(x: Array, position: int) -> Array:
    """Rotary embedding of one head's vector: pair i turned by position * 10000^(-2i / size)."""
    out = np.empty_like(x)
    for i in range(len(x) // 2):
        angle = position * 10000.0 ** (-2.0 * i / len(x))
        c, s = math.cos(angle), math.sin(angle)
        out[2 * i] = x[2 * i] * c - x[2 * i + 1] * s
        out[2 * i + 1] = x[2 * i] * s + x[2 * i + 1] * c
    return out


class TokenReference:
    """One model's weights, applied to explicit sequences of latents and actions."""

    def __init__(self, model: Any) -> None:
        self.w = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}
        self.window = model.window
        self.heads = model.transformer.shape.heads
        self.layers = model.transformer.shape.layers
        self.rotary = model.transformer.shape.rotary
        self.reward_atoms = model.reward_support.atoms.double().numpy()
        self.value_atoms = model.value_support.atoms.double().numpy()
        self.continuous = model.gaussian is not None

    def norm(self, name: str, x: Array) -> Array:
        return standardise(x) * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def linear(self, name: str, x: Array) -> Array:
        return affine(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def action_token(self, action: Array) -> Array:
        if self.continuous:
            return self.w["action_embedding.linear.weight"] @ np.asarray(action, np.float64)
        return self.w["action_embedding.table.weight"][int(action[0])]

    def outputs(self, tokens: list[Array], first_position: int = 0) -> list[Array]:
        """Final-norm output at every token of one sequence, by the definition of the band mask."""
        xs = []
        for i, token in enumerate(tokens):
            if not self.rotary:
                row = i if i < self.window else self.window - 2 + i % 2
                token = token + self.w["transformer.positions.weight"][row]
            xs.append(token)
        for layer in range(self.layers):
            xs = self.block(f"transformer.blocks.{layer}", xs, first_position)
        return [self.norm("transformer.norm", x) for x in xs]

    def block(self, name: str, xs: list[Array], first_position: int) -> list[Array]:
        width = len(xs[0])
        size = width // self.heads
        qkv = [
            self.linear(f"{name}.attention.qkv", self.norm(f"{name}.attention_norm", x)) for x in xs
        ]
        out = []
        for i, x in enumerate(xs):
            mixed = np.empty(width)
            for h in range(self.heads):
                part = slice(h * size, (h + 1) * size)
                query = self.place(qkv[i][:width][part], first_position + i)
                seen = range(max(0, i - self.window + 1), i + 1)
                keys = [
                    self.place(qkv[j][width : 2 * width][part], first_position + j) for j in seen
                ]
                share = softmax(np.array([query @ k for k in keys]) / math.sqrt(size))
                mixed[part] = sum(
                    s * qkv[j][2 * width :][part] for s, j in zip(share, seen, strict=True)
                )
            x = x + self.linear(f"{name}.attention.out", mixed)
            hidden = gelu(self.linear(f"{name}.up", self.norm(f"{name}.mlp_norm", x)))
            out.append(x + self.linear(f"{name}.down", hidden))
        return out

    def place(self, x: Array, position: int) -> Array:
        return turned(x, position) if self.rotary else x

    def head(self, name: str, number: int, x: Array) -> Array:
        size = self.w[f"{name}.scale"].shape[1]
        part = slice(number * size, (number + 1) * size)
        hidden = affine(
            x, self.w[f"{name}.hidden.weight"][part], self.w[f"{name}.hidden.bias"][part]
        )
        hidden = (
            standardise(hidden) * self.w[f"{name}.scale"][number] + self.w[f"{name}.shift"][number]
        )
        return self.linear(f"{name}.last.{number}", gelu(hidden))

    def observation(self, x: Array) -> tuple[Array, float]:
        """(policy parameters, raw value)."""
        value = scalar(self.head("observation_heads", 0, x), self.value_atoms)
        if not self.continuous:
            return self.head("observation_heads", 1, x), value
        hidden = np.maximum(self.linear("gaussian.body.0", x), 0.0)
        sigma = np.exp(np.clip(self.linear("gaussian.log_sigma", hidden), -20.0, 2.0))
        return np.concatenate([self.linear("gaussian.mu", hidden), sigma]), value

    def reward(self, x: Array) -> float:
        return scalar(self.head("action_heads", 0, x), self.reward_atoms)

    def next_latent(self, x: Array) -> Array:
        predicted = self.head("action_heads", 1, x)
        if "next_norm.affine.weight" in self.w:
            return self.norm("next_norm.affine", predicted)
        return np.concatenate([softmax(g) for g in predicted.reshape(-1, 8)])

    def follow(
        self, latents: list[Array], actions: list[Array], path: list[Array]
    ) -> tuple[Array, float, list[tuple[float, Array, float]]]:
        """Root policy and value, then (reward, policy, value) of each step of a path below it.

        Args:
            latents: of the root's m observations.
            actions: the m - 1 between them.
            path: the simulated actions.
        """
        tokens = [latents[0]]
        for latent, action in zip(latents[1:], actions, strict=True):
            tokens += [self.action_token(action), latent]
        policy, value = self.observation(self.outputs(tokens)[-1])
        steps = []
        for action in path:
            tokens.append(self.action_token(action))
            out = self.outputs(tokens)[-1]
            reward = self.reward(out)
            tokens.append(self.next_latent(out))
            step_policy, step_value = self.observation(self.outputs(tokens)[-1])
            steps.append((reward, step_policy, step_value))
        return policy, value, steps


def scalar(logits: Array, atoms: Array) -> float:
    """Expectation over the atoms, then the inverse of h by bisection on h itself."""
    y = float(softmax(logits) @ atoms)
    size, low, high = abs(y), 0.0, 1e7
    for _ in range(200):
        x = 0.5 * (low + high)
        if math.sqrt(x + 1.0) - 1.0 + 0.001 * x < size:
            low = x
        else:
            high = x
    return math.copysign(low, y)
