"""A leader resigns while another ISR is under way: that one may have been granted, and then whom it names may lead."""

from moldau.replication.isr import Isr


def test_whom_an_abandoned_wish_names_goes_on_counting() -> None:
    isr = Isr(1, (1, 2, 3), (1, 2), 5, epoch_start=0, high_watermark=0, now=0)
    isr.followers[2].fetched(4, 0, 9, leader_end=10, now=1)
    isr.followers[3].fetched(4, 0, 9, leader_end=10, now=1)
    isr.propose((1, 2, 3))
    isr.abandon_pending()
    assert isr.propose((2, 3)).partition_epoch == 5
    isr.followers[2].fetched(10, 0, 9, leader_end=10, now=2)
    isr.advance(10, 1, now=10**9, lag_ms=1, epoch_of=lambda _: None)
    assert isr.high_watermark == 4
    isr.adopt((1, 2, 3), (2,), 6, now=3)
    isr.advance(10, 1, now=10**9, lag_ms=1, epoch_of=lambda _: None)
    assert isr.high_watermark == 10
