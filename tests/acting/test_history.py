import numpy as np

from zero_tune.acting.history import HistoryRing
from zero_tune.types import ActionSpec


def ring(length=1, stack=1, shape=(1,)):
    return HistoryRing(2, length, stack, shape, "float32", ActionSpec("discrete", 3))


def frame(*values):
    return np.array(values, np.float32)[:, None]


BOTH = np.arange(2)


def test_frames_stack_oldest_first_and_the_first_repeats():
    history = ring(stack=3)
    for slot_frames in ((1, 5), (2, 6), (3, 7), (4, 8)):
        history.append(BOTH, frame(*slot_frames))
    assert history.view().obs[:, 0].tolist() == [[2, 3, 4], [6, 7, 8]]
    history.reset(np.array([1]))
    history.append(np.array([1]), frame(9))
    assert history.view().obs[:, 0].tolist() == [[2, 3, 4], [9, 9, 9]]


def test_the_last_m_steps_are_kept_with_their_actions():
    history = ring(length=3)
    for t in range(5):
        history.append(BOTH, frame(t, 10 + t))
        history.set_action(BOTH, np.array([[t % 3], [2]]))
    view = history.view()
    assert view.obs[0, :, 0].tolist() == [2, 3, 4] and view.action[0, :, 0].tolist() == [2, 0, 1]
    assert view.length.tolist() == [3, 3] and view.timestep.tolist() == [4, 4]


def test_resetting_one_slot_leaves_the_other_alone():
    history = ring(length=3)
    for t in range(4):
        history.append(BOTH, frame(t, t))
    before = history.view().obs[1].clone()
    history.reset(np.array([0]))
    history.append(np.array([0]), frame(7))
    view = history.view()
    assert view.length.tolist() == [1, 3] and view.timestep.tolist() == [0, 3]
    assert view.obs[0, -1, 0] == 7 and view.action[0].sum() == 0
    assert np.array_equal(view.obs[1], before)
