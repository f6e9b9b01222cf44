"""Work beside other work: what may begin early, and that without a GPU all stays in one line."""

from __future__ import annotations

import pytest
import torch

from kernels.cuda import lanes


def test_without_a_gpu_everything_stays_in_one_line() -> None:
    x = torch.zeros(4)
    with lanes.open_lanes("cpu"):
        lanes.ready(x)
        with lanes.aside(x, lanes.ROWS):
            assert lanes.current() == 0
        lanes.wait(x)
        lanes.join()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_lanes_begin_where_their_input_was_ready_and_end_at_the_join() -> None:
    x, y = torch.zeros(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    main = torch.cuda.current_stream()
    with lanes.open_lanes("cuda"):
        with lanes.aside(x, lanes.ROWS):
            assert lanes.current() == 0  # nobody said that x is ready
        lanes.ready(x)
        with lanes.aside(x, lanes.ROWS):
            assert lanes.current() == lanes.ROWS
            assert torch.cuda.current_stream() != main
            for _ in range(100):
                y.add_(x).add_(1)
            lanes.join()  # from a lane, for nothing
            assert lanes.current() == lanes.ROWS
        assert torch.cuda.current_stream() == main
        lanes.join()
        assert y.eq(100).all()
        with lanes.aside(x, lanes.SHARED):
            assert lanes.current() == 0  # a join forgets what was ready


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_lane_waits_for_what_another_one_has_made_ready() -> None:
    x, y = torch.ones(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    copy = torch.zeros(1 << 24, device="cuda")
    with lanes.open_lanes("cuda"):
        lanes.ready(x)
        with lanes.aside(x, lanes.ROWS):
            for _ in range(100):
                y.add_(x)
            lanes.ready(y)
        with lanes.aside(x, lanes.CHOICE):
            lanes.wait(y)
            copy.copy_(y)
    assert copy.eq(100).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_join_leaves_out_lanes_whose_last_result_was_waited_for() -> None:
    x, y = torch.ones(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    slow = torch.zeros(1 << 24, device="cuda")
    with lanes.open_lanes("cuda"):
        lanes.ready(x)
        with lanes.aside(x, lanes.ROWS):
            for _ in range(100):
                y.add_(x)
            lanes.ready(y)
        with lanes.aside(x, lanes.ROWS):
            for _ in range(100):
                slow.add_(x)
        lanes.wait(y)  # not the last work there
        lanes.join()
        both = y + slow
        lanes.ready(x)
        with lanes.aside(x, lanes.ROWS):
            y.add_(x)
            lanes.ready(y)
        lanes.wait(y)
        after = y.clone()
        lanes.join()
    assert both.eq(200).all()
    assert after.eq(101).all()
