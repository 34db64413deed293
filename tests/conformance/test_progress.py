"""Test the progress bar with a simulated clock and stream."""

from __future__ import annotations

from io import StringIO

import pytest
from dualdnn.conformance.progress import SHARES, Bar, clock


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("seconds, text", [(7.4, "0:07"), (760, "12:40"), (3900, "1:05:00")])
def test_durations_read_as_people_write_them(seconds, text):
    assert clock(seconds) == text


def test_a_stream_that_is_not_a_terminal_gets_ten_lines():
    stream, now = StringIO(), Clock()
    bar = Bar("cases", 1000, stream, now)
    for done in range(1, 1001):
        now.seconds += 0.1
        bar.advance(done, "none failed")
    lines = stream.getvalue().splitlines()
    assert len(lines) == SHARES and "\r" not in stream.getvalue()
    assert lines[4] == " 50%  500 of 1,000 cases, none failed, about 0:50 left"
    assert lines[-1] == "100%  1,000 of 1,000 cases, none failed, 1:40 taken"


def test_a_terminal_gets_a_bar_that_makes_room_for_lines():
    stream, now = Terminal(), Clock()
    bar = Bar("cases", 4, stream, now)
    for done in (1, 2):
        now.seconds += 60
        bar.advance(done, "1 failed")
    bar.advance(3)  # The bar is not redrawn so soon.
    assert stream.getvalue().count("\r") == 2 and "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("[############------------]  50%  2 of 4 cases, 1 failed, about 2:00 left")
    bar.clear()
    bar.clear()
    assert stream.getvalue().endswith("left\r\x1b[K")


def test_nothing_is_shown_before_the_total_is_known():
    stream = StringIO()
    bar = Bar("cases", 0, stream, Clock())
    bar.advance(5)
    assert stream.getvalue() == ""
